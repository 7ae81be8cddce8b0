"""What is in Nsight's global ids: the numbers by which the operating system knows them."""

#: hardware << 56 | vm << 48 | process << 24 | thread, as a signed 64-bit number.
_BITS = 24
_MASK = (1 << _BITS) - 1


def os_process(process_id: int) -> int:
    """Return the number of a process on its host; a number that is no global id stays as it is."""
    return (process_id >> _BITS) & _MASK if process_id >> _BITS else process_id


def os_thread(thread_id: int) -> int:
    """Return the number of a thread on its host."""
    return thread_id & _MASK
