/* The network alone, as a product would hold it: the sizes of this file are those that are reported. */
#include "run.h"

#ifdef CHECK
uint32_t digest;

void add(int32_t value)
{
    digest = (digest ^ (uint32_t)value) * 16777619u;
}

#define NETWORK_SPIKE(layer, neuron) (digest = (digest ^ (uint32_t)(neuron)) * 16777619u)
#endif
#include "network.h"

static network_state state;

void network_begin(void)
{
    network_reset(&state);
}

int network_feed(const input_t *x)
{
    return network_step(&state, INPUT(x));
}

void network_read(int64_t *scores, uint32_t *spikes)
{
#ifdef CHECK
    STATES
#endif
    network_scores(&state, scores);
    for (int i = 0; i < NETWORK_LAYERS; i++)
        spikes[i] = state.spikes[i];
}
