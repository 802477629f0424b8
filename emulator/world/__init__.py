"""The world of time: devices, links, group operations. Knows seconds, bytes and joules; never sees a tensor."""
