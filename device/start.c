/* What runs before main on a bare Cortex-M4: the vector table, memory, and the way out through the debugger. */
#include <stdint.h>

extern uint32_t stack_top, data_from, data_begin, data_end, bss_begin, bss_end;
int main(void);
void leave(int code);
void start(void);

/* Semihosting: a breakpoint that QEMU (or a debug probe) answers. */
int ask(int operation, const void *what)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = what;

    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void leave(int code)
{
    const uint32_t how[2] = {0x20026, (uint32_t)code}; /* the application's own end, its exit code */

    ask(0x20, how);
    for (;;)
        ;
}

static void fault(void)
{
    leave(3);
}

void start(void)
{
    uint32_t *from = &data_from;

    for (uint32_t *to = &data_begin; to < &data_end;)
        *to++ = *from++;
    for (uint32_t *to = &bss_begin; to < &bss_end;)
        *to++ = 0;
    leave(main());
}

__attribute__((section(".vectors"), used)) static const struct {
    const void *stack;
    void (*handlers[15])(void);
} vectors = {&stack_top, {start, fault, fault, fault, fault, fault}};
