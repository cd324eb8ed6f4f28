/* Feeds the samples and prints, in hexadecimal, what the simulation must print too, and how long it took.
 *
 * SysTick counts down, 24 bits wide, at the processor's clock. Under QEMU's -icount shift=0 that clock stands still but
 * for instructions: each is one nanosecond. A loop of known length tells how many instructions a tick is.
 */
#include "run.h"
#include "samples.h"

#define SYSTICK ((volatile uint32_t *)0xe000e010)

int ask(int operation, const void *what);

static void word(uint64_t value, int digits, char behind)
{
    char text[18];

    for (int i = digits - 1; i >= 0; i--, value >>= 4)
        text[i] = "0123456789abcdef"[value & 15];
    text[digits] = behind;
    text[digits + 1] = 0;
    ask(4, text);
}

static uint32_t since(uint32_t before)
{
    return (before - SYSTICK[2]) & 0xffffff;
}

static uint32_t loop(uint32_t times)
{
    const uint32_t before = SYSTICK[2];

    __asm__ volatile("1: subs %0, %0, #1\n bne 1b" : "+r"(times) : : "cc");
    return since(before);
}

int main(void)
{
    static int64_t scores[CLASSES];
    static uint32_t spikes[LAYERS];
    const input_t *x = samples;

    SYSTICK[1] = 0xffffff;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    /* 2,000,000 instructions more in one than in the other. */
    const uint32_t less = loop(1000000), more = loop(2000000);
    word(more - less, 8, '\n');
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t ticks = 0;

        network_begin();
#ifdef CHECK
        digest = 2166136261u;
#endif
        /* Read at every step, since it wraps around; what is lost in reading is a fraction of a tick. */
        uint32_t last = SYSTICK[2];
        for (uint32_t t = 0; t < lengths[i]; t++, x += INPUTS) {
            if (network_feed(x) != 0)
                return 2;
            const uint32_t now = SYSTICK[2];
            ticks += (last - now) & 0xffffff;
            last = now;
#ifdef CHECK
            add(-1);
#endif
        }
        network_read(scores, spikes);
        for (int k = 0; k < CLASSES; k++)
            word((uint64_t)scores[k], 16, ' ');
#ifdef CHECK
        word(digest, 8, ' ');
#endif
        for (int k = 0; k < LAYERS; k++)
            word(spikes[k], 8, ' ');
        word(ticks, 16, '\n');
    }
    return 0;
}
