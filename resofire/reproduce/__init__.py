"""Every table, figure and theorem of the paper, one file each."""
