"""The world of learning: data, partitions, models and their training. It knows tensors and never sees the clock."""
