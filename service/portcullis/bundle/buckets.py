"""Sizes that batches are rounded up to, where a provider plans anew for every size that it has not just seen. Pure."""

FIRST = (1, 8, 32, 64)


def bucket_sizes(max_batch: int) -> tuple[int, ...]:
    """Ever larger sizes, the last of them `max_batch`: 1, 8, 32, 64, then twice as much each time."""
    sizes = [size for size in FIRST if size < max_batch]
    while sizes and sizes[-1] >= FIRST[-1] and 2 * sizes[-1] < max_batch:
        sizes.append(2 * sizes[-1])
    return (*sizes, max_batch)


def bucket_of(num_images: int, sizes: tuple[int, ...]) -> int:
    """The smallest size that holds so many; the largest where none does."""
    return next((size for size in sizes if size >= num_images), sizes[-1])
