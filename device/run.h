/* What the files here share; sizes and types of the network are written to shape.h when it is exported. */
#include <stdint.h>

#include "shape.h"

extern uint32_t digest;
void add(int32_t value);
void network_begin(void);
int network_feed(const input_t *x);
void network_read(int64_t *scores, uint32_t *spikes);
