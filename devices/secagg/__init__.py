"""Secure aggregation: a server learns the sum of its clients' vectors and nothing else about them.

The protocol of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (CCS 2017), with
clients that may drop out. The server follows it but is curious (a passive adversary), or may lie (an active one). In four
steps (`steps.STEPS`):

1. keys: each client publishes two public keys, one for sealing shares and one for masks;
2. shares: each client cuts its private mask key and the seed of its self-mask into shares, of which any ``threshold`` give the
   secret back, and sends one of each to every other client, sealed;
3. masked: each client sends its vector plus its self-mask plus a mask for each other client, which cancel in the sum;
4. unmask: the clients that are left reveal, for each client, one share: of the seed where its vector arrived, of the mask
   key where it did not. The server takes the masks that remain off the sum.

Against an active adversary clients sign their public keys, and before the last step the list of those whose vectors arrived;
they reveal nothing unless as many as the threshold signed the same list. The threshold is above half of the clients always.

`client` and `server` are the two parties, `identity` holds the keys that clients sign with, `messages` what they send,
`session` a run of all of them in one process with its times and bytes, `cost` what a run costs by count of operations, `fit`
finds the seconds of each operation from measurements.
"""
