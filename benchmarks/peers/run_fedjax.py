"""FedJAX: its federated averaging, with ``for_each_client`` on all CPU devices of JAX (the backend ``pmap``)."""

from __future__ import annotations

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from fedjax.algorithms import fed_avg
from workload import BATCH, LEARNING_RATE, Rounds, asked, initial_weights, make_workload


def channels_last(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The initial weights for images with their channels last, which is the order that JAX convolves fastest on CPUs."""
    kernels = {k: v.transpose(2, 3, 1, 0) for k, v in weights.items() if v.ndim == 4}
    dense = weights["7.weight"].reshape(10, 32, 4, 4).transpose(2, 3, 1, 0).reshape(512, 10)
    return weights | kernels | {"7.weight": dense}


def answers(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """What the network says of images [samples, 28, 28, 1]: [samples, classes]."""
    for layer in ("0", "3"):
        x = jax.lax.conv_general_dilated(
            x, params[f"{layer}.weight"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params[f"{layer}.bias"])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1) @ params["7.weight"] + params["7.bias"]


def mean_loss(params: dict[str, jax.Array], batch: dict[str, jax.Array], rng: jax.Array | None = None) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(answers(params, batch["x"]), batch["y"]).mean()


def main() -> None:
    told = asked()
    work = make_workload(told.clients)
    fedjax.set_for_each_client_backend("pmap")
    algorithm = fed_avg.federated_averaging(
        jax.grad(mean_loss),
        fedjax.optimizers.sgd(LEARNING_RATE),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )
    sets = [fedjax.ClientDataset({"x": x.transpose(0, 2, 3, 1), "y": y.astype(np.int32)}) for x, y in work.parts()]
    keys = jax.random.split(jax.random.PRNGKey(0), told.clients)
    clients = [(str(c).encode(), own, keys[c]) for c, own in enumerate(sets)]
    test = {"x": work.test_x.transpose(0, 2, 3, 1), "y": work.test_y.astype(np.int32)}
    state = algorithm.init(jax.tree_util.tree_map(jnp.asarray, channels_last(initial_weights())))

    def loss() -> float:
        return float(mean_loss(state.params, test))

    rounds = Rounds(loss())
    for _ in range(told.rounds):
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        rounds.ended(loss)
    rounds.print()


if __name__ == "__main__":
    main()
