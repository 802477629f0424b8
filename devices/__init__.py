"""Devices: profiles of real hardware, how long they compute, what they draw, what group operations cost."""
