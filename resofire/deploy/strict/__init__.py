"""Looking through files of foreign formats before anything is run or allocated for them."""
