"""Slow, obvious float64 NumPy oracle for the tests: the paper's equations as loops, for one receptive field.

It shares no code with the library. Votes are [I, J, D], input activations [I], output poses [J, D], coupling [I, J].
Everything is computed directly (r / sum r, exp), not as logarithms, so keep the magnitudes of the inputs moderate:
where an exponential underflows in float64, this file is the one that is wrong. Two things only are shifted before exp,
because the shift cancels: the softmax, and the Gaussian densities of EM (a variance can be as small as its floor).
"""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray
Distance = str | tuple[str, Array]
Pair = int | tuple[int, int]


# ---------------------------------------------------------------------------------------------------------------------
# kernels, distances, normalisation


def _float64(array: Array) -> Array:
    return np.asarray(array, dtype=np.float64)


def kernel_is_clipped(kernel: str, normalize: str) -> bool:
    """Whether an Epanechnikov kernel ends at x = 1; by its plain name it does under "sum" only."""
    if kernel == "epanechnikov":
        return {"softmax": False, "sum": True}[normalize]
    return {"epanechnikov-clipped": True, "epanechnikov-unclipped": False}[kernel]


def kernel_value(x: float, kernel: str, normalize: str) -> float:
    """Profile k(x), eq. 2."""
    if kernel == "gaussian":
        return math.exp(-x / 2)
    if kernel_is_clipped(kernel, normalize) and x >= 1:
        return 0.0
    return 1.0 - x


def kernel_slope(x: float, kernel: str, normalize: str) -> float:
    """Derivative k'(x) of eq. 2."""
    if kernel == "gaussian":
        return -math.exp(-x / 2) / 2
    if kernel_is_clipped(kernel, normalize) and x >= 1:
        return 0.0
    return -1.0


def distance_value(u: Array, v: Array, distance: Distance) -> float:
    """Distance d(u, v) of two vectors [D]: l1, squared l2, eq. 9 ("inner"), or ("mahalanobis", precision)."""
    dimensions = len(u)
    if isinstance(distance, tuple):
        name, precision = distance
        if name != "mahalanobis":
            raise ValueError(f"unknown distance {name!r}")
        matrix = _float64(precision)
        if matrix.ndim == 1:
            matrix = np.diag(matrix)
        total = 0.0
        for d in range(dimensions):
            for e in range(dimensions):
                total += (u[d] - v[d]) * matrix[d, e] * (u[e] - v[e])
        return total
    if distance == "l1":
        return sum(abs(u[d] - v[d]) for d in range(dimensions))
    if distance == "l2":
        return sum((u[d] - v[d]) ** 2 for d in range(dimensions))
    if distance == "inner":
        return 1.0 - sum(u[d] * v[d] for d in range(dimensions))
    raise ValueError(f"unknown distance {distance!r}")


def softmax(values: Array) -> Array:
    """Softmax of a vector."""
    exponentials = np.exp(values - values.max())
    return exponentials / exponentials.sum()


def normalise_row(row: Array, normalize: str) -> Array:
    """Step 1 of algorithms 1 and 2 for one input capsule: r [J] to r' [J]; uniform where a row sums to zero."""
    if normalize == "softmax":
        return softmax(row)
    if normalize != "sum":
        raise ValueError(f"unknown normalisation {normalize!r}")
    positive = np.array([r if r > 0 else 0.0 for r in row])
    total = positive.sum()
    if total == 0:
        return np.full(len(row), 1.0 / len(row))
    return positive / total


def weighted_mean(votes: Array, weight: Array, previous: Array) -> Array:
    """Step 2 of algorithms 1 and 2: mean of the votes [I, J, D] under weight [I, J]; no weight keeps `previous`."""
    inputs, outputs, dimensions = votes.shape
    pose = previous.copy()
    for j in range(outputs):
        total = sum(weight[i, j] for i in range(inputs))
        if total > 0:
            for d in range(dimensions):
                pose[j, d] = sum(weight[i, j] * votes[i, j, d] for i in range(inputs)) / total
    return pose


# ---------------------------------------------------------------------------------------------------------------------
# routing


def frms(
    votes: Array,
    activation: Array,
    iterations: int = 2,
    kernel: str = "epanechnikov",
    distance: Distance = "l1",
    normalize: str = "softmax",
    bandwidth: float = 1.0,
    step: float = 1.0,
) -> tuple[Array, Array]:
    """Algorithm 1 (eqs. 6 and 7), routing by mean shift: pose [J, D] and the coupling [I, J] of the last step 1."""
    votes, activation = _float64(votes), _float64(activation)
    inputs, outputs, dimensions = votes.shape
    r = np.full((inputs, outputs), 1.0 / outputs)
    coupling = np.zeros((inputs, outputs))
    pose = np.zeros((outputs, dimensions))
    for t in range(iterations):
        # 1. r'_ij = r_ij / sum_j r_ij, or the softmax over j
        for i in range(inputs):
            coupling[i] = normalise_row(r[i], normalize)
        # 2. v_j = sum_i r' a k'(d) u / sum_i r' a k'(d); no v_j exists in the first iteration, k' is constant there
        weight = np.zeros((inputs, outputs))
        for i in range(inputs):
            for j in range(outputs):
                slope = 1.0
                if t > 0:
                    x = distance_value(votes[i, j], pose[j], distance) / bandwidth
                    slope = -kernel_slope(x, kernel, normalize)
                weight[i, j] = coupling[i, j] * activation[i] * slope
        pose = weighted_mean(votes, weight, pose)
        # 3. r_ij = r_ij + alpha a_i k(d)
        for i in range(inputs):
            for j in range(outputs):
                x = distance_value(votes[i, j], pose[j], distance) / bandwidth
                r[i, j] = r[i, j] + step * activation[i] * kernel_value(x, kernel, normalize)
    return pose, coupling


def frem(
    votes: Array,
    activation: Array,
    iterations: int = 2,
    kernel: str = "epanechnikov",
    distance: Distance = "l1",
    normalize: str = "softmax",
    bandwidth: float = 1.0,
) -> tuple[Array, Array]:
    """Algorithm 2, routing by expectation maximisation: pose [J, D] and the coupling [I, J] of the last step 1."""
    votes, activation = _float64(votes), _float64(activation)
    inputs, outputs, dimensions = votes.shape
    r = np.full((inputs, outputs), 1.0 / outputs)
    coupling = np.zeros((inputs, outputs))
    pose = np.zeros((outputs, dimensions))
    for _ in range(iterations):
        # 1. r'_ij = r_ij / sum_j r_ij, or the softmax over j
        for i in range(inputs):
            coupling[i] = normalise_row(r[i], normalize)
        # 2. v_j = sum_i r' a u / sum_i r' a
        weight = np.zeros((inputs, outputs))
        for i in range(inputs):
            for j in range(outputs):
                weight[i, j] = coupling[i, j] * activation[i]
        pose = weighted_mean(votes, weight, pose)
        # 3. pi_j = sum_i r' / sum_j sum_i r'
        mixture = np.zeros(outputs)
        for j in range(outputs):
            mixture[j] = sum(coupling[i, j] for i in range(inputs)) / coupling.sum()
        # 4. r_ij = pi_j k(d)
        for i in range(inputs):
            for j in range(outputs):
                x = distance_value(votes[i, j], pose[j], distance) / bandwidth
                r[i, j] = mixture[j] * kernel_value(x, kernel, normalize)
    return pose, coupling


def capsule_activation(
    votes: Array,
    activation: Array,
    coupling: Array,
    pose: Array,
    beta: Array,
    beta0: Array,
    kernel: str = "epanechnikov",
    distance: Distance = "l1",
    normalize: str = "softmax",
    bandwidth: float = 1.0,
) -> Array:
    """Eq. 8: softmax_j( sum_i r'_ij a_i k((d(u_ij, beta_j v_j) + beta0_j) / h) ), [J]."""
    votes, activation, coupling, pose = _float64(votes), _float64(activation), _float64(coupling), _float64(pose)
    beta, beta0 = _float64(beta), _float64(beta0)
    inputs, outputs, _ = votes.shape
    density = np.zeros(outputs)
    for j in range(outputs):
        for i in range(inputs):
            y = (distance_value(votes[i, j], beta[j] * pose[j], distance) + beta0[j]) / bandwidth
            density[j] += coupling[i, j] * activation[i] * kernel_value(y, kernel, normalize)
    return softmax(density)


def objective(
    votes: Array,
    activation: Array,
    pose: Array,
    coupling: Array,
    kernel: str = "epanechnikov",
    distance: Distance = "l1",
    normalize: str = "softmax",
    bandwidth: float = 1.0,
) -> float:
    """Eq. 3: f(v, r) = (1/I) sum_j sum_i r_ij a_i k(d(v_j, u_ij) / h), with z_k = 1."""
    votes, activation, pose, coupling = _float64(votes), _float64(activation), _float64(pose), _float64(coupling)
    inputs, outputs, _ = votes.shape
    total = 0.0
    for j in range(outputs):
        for i in range(inputs):
            x = distance_value(votes[i, j], pose[j], distance) / bandwidth
            total += coupling[i, j] * activation[i] * kernel_value(x, kernel, normalize)
    return float(total / inputs)


def _log_gaussian(u: Array, mean: Array, variance: Array) -> float:
    """Log of the density of a Gaussian with a diagonal covariance at u [D]."""
    total = 0.0
    for d in range(len(u)):
        total -= (u[d] - mean[d]) ** 2 / (2 * variance[d]) + 0.5 * math.log(2 * math.pi * variance[d])
    return total


def em(
    votes: Array,
    activation: Array,
    beta_u: Array,
    beta_a: Array,
    iterations: int = 2,
    final_lambda: float = 0.01,
    lambda_decay: float = 0.95,
    variance_floor: float = 1e-8,
) -> tuple[Array, Array, Array]:
    """EM routing (Hinton et al. 2018, procedure 1): pose [J, D], activation [J], coupling [I, J] of the last M step."""
    votes, activation = _float64(votes), _float64(activation)
    beta_u, beta_a = _float64(beta_u), _float64(beta_a)
    inputs, outputs, dimensions = votes.shape
    coupling = np.full((inputs, outputs), 1.0 / outputs)
    mean = np.zeros((outputs, dimensions))
    variance = np.ones((outputs, dimensions))
    output_activation = np.zeros(outputs)
    for t in range(iterations):
        # M step
        inverse_temperature = final_lambda * (1 - lambda_decay ** (t + 1))
        for j in range(outputs):
            mass = sum(coupling[i, j] * activation[i] for i in range(inputs))
            cost = 0.0
            for d in range(dimensions):
                if mass > 0:
                    mean[j, d] = sum(coupling[i, j] * activation[i] * votes[i, j, d] for i in range(inputs)) / mass
                    spread = sum(
                        coupling[i, j] * activation[i] * (votes[i, j, d] - mean[j, d]) ** 2 for i in range(inputs)
                    )
                    variance[j, d] = max(spread / mass, variance_floor)
                cost += (beta_u[j] + math.log(math.sqrt(variance[j, d]))) * mass
            output_activation[j] = 1 / (1 + math.exp(-inverse_temperature * (beta_a[j] - cost)))
        if t == iterations - 1:
            break
        # E step: r_ij = a_j p_ij / sum_j a_j p_ij, where a common factor of p_i: cancels
        for i in range(inputs):
            log_density = np.array([_log_gaussian(votes[i, j], mean[j], variance[j]) for j in range(outputs)])
            density = np.exp(log_density - log_density.max())
            coupling[i] = output_activation * density / (output_activation * density).sum()
    return mean, output_activation, coupling


def em_log_likelihood(
    votes: Array,
    activation: Array,
    pose: Array,
    capsule_activation: Array,
    coupling: Array,
    variance_floor: float = 1e-8,
) -> float:
    """Weighted log-likelihood of EM: (1/I) sum_i a_i log sum_j (a_j / sum_j a_j) N(u_ij; mu_j, var_j).

    var_j is the variance about the pose with weights r_ij a_i, floored; an output capsule without any weight has 1.
    """
    votes, activation, pose, coupling = _float64(votes), _float64(activation), _float64(pose), _float64(coupling)
    inputs, outputs, dimensions = votes.shape
    prior = _float64(capsule_activation) / _float64(capsule_activation).sum()
    variance = np.ones((outputs, dimensions))
    for j in range(outputs):
        mass = sum(coupling[i, j] * activation[i] for i in range(inputs))
        if mass > 0:
            for d in range(dimensions):
                spread = sum(coupling[i, j] * activation[i] * (votes[i, j, d] - pose[j, d]) ** 2 for i in range(inputs))
                variance[j, d] = max(spread / mass, variance_floor)
    total = 0.0
    for i in range(inputs):
        if activation[i] == 0:
            continue
        log_terms = [
            math.log(prior[j]) + _log_gaussian(votes[i, j], pose[j], variance[j])
            for j in range(outputs)
            if prior[j] > 0
        ]
        top = max(log_terms)
        total += activation[i] * (top + math.log(sum(math.exp(term - top) for term in log_terms)))
    return float(total / inputs)


def squash(s: Array) -> Array:
    """Sabour et al. 2017, eq. 1: |s|^2 / (1 + |s|^2) * s / |s|, zero for a zero vector."""
    length = math.sqrt(sum(x**2 for x in s))
    if length == 0:
        return np.zeros(len(s))
    return length**2 / (1 + length**2) * s / length


def agreement(votes: Array, iterations: int = 3) -> tuple[Array, Array, Array]:
    """Routing by agreement (Sabour et al. 2017, procedure 1): pose [J, D], activation [J], coupling [I, J]."""
    votes = _float64(votes)
    inputs, outputs, dimensions = votes.shape
    b = np.zeros((inputs, outputs))
    coupling = np.zeros((inputs, outputs))
    pose = np.zeros((outputs, dimensions))
    for _ in range(iterations):
        for i in range(inputs):
            coupling[i] = softmax(b[i])
        for j in range(outputs):
            s = np.zeros(dimensions)
            for i in range(inputs):
                s = s + coupling[i, j] * votes[i, j]
            pose[j] = squash(s)
        for i in range(inputs):
            for j in range(outputs):
                b[i, j] = b[i, j] + sum(votes[i, j, d] * pose[j, d] for d in range(dimensions))
    activation = np.array([math.sqrt(sum(x**2 for x in pose[j])) for j in range(outputs)])
    return pose, activation, coupling


def frms_variant(votes: Array, iterations: int = 2) -> tuple[Array, Array, Array]:
    """Algorithm 3 with the activation of eq. 10: pose [J, D], activation [J], coupling [I, J]."""
    votes = _float64(votes)
    inputs, outputs, dimensions = votes.shape
    r = np.full((inputs, outputs), 1.0 / outputs)
    coupling = np.zeros((inputs, outputs))
    pose = np.zeros((outputs, dimensions))
    for _ in range(iterations):
        # 1. r'_ij = softmax(r_ij)
        for i in range(inputs):
            coupling[i] = softmax(r[i])
        # 2. v_j = sum_i r'_ij u_ij
        pose = np.zeros((outputs, dimensions))
        for j in range(outputs):
            for i in range(inputs):
                pose[j] = pose[j] + coupling[i, j] * votes[i, j]
        # 3. r_ij = r_ij + u_ij . v_j
        for i in range(inputs):
            for j in range(outputs):
                r[i, j] = r[i, j] + sum(votes[i, j, d] * pose[j, d] for d in range(dimensions))
    # eq. 10
    score = np.zeros(outputs)
    for j in range(outputs):
        for i in range(inputs):
            score[j] += coupling[i, j] * sum(votes[i, j, d] * pose[j, d] for d in range(dimensions))
    return pose, softmax(score), coupling


# ---------------------------------------------------------------------------------------------------------------------
# losses


def spread_loss(activation: Array, label: Array, margin: float) -> float:
    """Spread loss: sum over the wrong classes of max(0, m - (a_t - a_c))^2, mean over the batch [B, C]."""
    activation = _float64(activation)
    batch, classes = activation.shape
    total = 0.0
    for b in range(batch):
        target = int(label[b])
        for c in range(classes):
            if c != target:
                total += max(0.0, margin - (activation[b, target] - activation[b, c])) ** 2
    return float(total / batch)


def margin_loss(
    activation: Array, label: Array, positive: float = 0.9, negative: float = 0.1, down_weight: float = 0.5
) -> float:
    """Margin loss (Sabour et al. 2017, eq. 4): sum over the classes, mean over the batch [B, C]."""
    activation = _float64(activation)
    batch, classes = activation.shape
    total = 0.0
    for b in range(batch):
        for c in range(classes):
            if c == int(label[b]):
                total += max(0.0, positive - activation[b, c]) ** 2
            else:
                total += down_weight * max(0.0, activation[b, c] - negative) ** 2
    return float(total / batch)


def activation_cross_entropy(activation: Array, label: Array) -> float:
    """-log of the target's share of the activations, mean over the batch [B, C]."""
    activation = _float64(activation)
    shares = [row[int(target)] / row.sum() for row, target in zip(activation, label, strict=True)]
    return float(-sum(np.log(share) for share in shares) / len(shares))


def reconstruction_loss(image: Array, target: Array, weight: float = 0.0005) -> float:
    """Weighted sum of squares over pixels and channels, mean over the batch [B, ...]."""
    image, target = _float64(image), _float64(target)
    if image.shape != target.shape:
        raise ValueError(f"shapes differ: {image.shape} and {target.shape}")
    batch = len(image)
    total = 0.0
    for b in range(batch):
        total += ((image[b] - target[b]) ** 2).sum()
    return float(weight * total / batch)


# ---------------------------------------------------------------------------------------------------------------------
# capsule convolution


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def capsule_conv(
    pose: Array,
    activation: Array,
    weight: Array,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: Pair = 0,
) -> tuple[Array, Array]:
    """Fields and votes of a capsule convolution: votes [Ho, Wo, I, J, 16], activations of the fields [Ho, Wo, I].

    pose [16 n, H, W], activation [n, H, W], weight [kh kw n, J, 4, 4]. Channel 16 c + d is dimension d of capsule c, a
    field's capsules run row, column, capsule, and padding is capsules with zero pose and zero activation.
    """
    pose, activation, weight = _float64(pose), _float64(activation), _float64(weight)
    capsules, height, width = activation.shape
    outputs = weight.shape[1]
    (kh, kw), (sh, sw), (ph, pw) = _pair(kernel_size), _pair(stride), _pair(padding)
    inputs = kh * kw * capsules
    if pose.shape != (16 * capsules, height, width) or weight.shape != (inputs, outputs, 4, 4):
        raise ValueError(f"shapes do not fit: {pose.shape}, {activation.shape}, {weight.shape}")
    out_height = (height + 2 * ph - kh) // sh + 1
    out_width = (width + 2 * pw - kw) // sw + 1
    votes = np.zeros((out_height, out_width, inputs, outputs, 16))
    field_activation = np.zeros((out_height, out_width, inputs))
    for y in range(out_height):
        for x in range(out_width):
            i = 0
            for row in range(kh):
                for column in range(kw):
                    from_y, from_x = y * sh - ph + row, x * sw - pw + column
                    inside = 0 <= from_y < height and 0 <= from_x < width
                    for c in range(capsules):
                        if inside:
                            matrix = np.zeros((4, 4))
                            for d in range(16):
                                matrix[d // 4, d % 4] = pose[16 * c + d, from_y, from_x]
                            for j in range(outputs):
                                votes[y, x, i, j] = (matrix @ weight[i, j]).reshape(16)
                            field_activation[y, x, i] = activation[c, from_y, from_x]
                        i += 1
    return votes, field_activation
