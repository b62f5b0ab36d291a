"""The exact posterior, as a sum over all supports, in log space and without drift.

The supports are the leaves of a binary tree: each level decides whether one more feature is in. A
node keeps what its remaining features need, no more: a factor R with a target b, such that R'R is
the precision and R'b the shift that the likelihood gives them once the weights let in so far are
integrated out. R is upper triangular, and its last column is the feature decided next. Out: drop
the column. In: one pass of rotations over the rows, :eq:`grow`. On the way back every node returns
the log mass and the moments of its remaining features, :eq:`fold`.

Tiny noise does no harm, for two reasons. A Gram matrix updated in place would lose v |x|^2 / s2
units in the last place; its factor loses the square root of that. And log masses are not gains
over the empty support, which cancel, but minus half the squares of what nothing can explain.

Symbols: l (`level`), features that remain; N, nodes handled at once, always the last axis; g, the
column decided. Weights are in units of their slab's deviation inside: slab variance 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from math import inf, log, pi
from typing import Any, NamedTuple

from epslab._array import Array

FEATURES_ABOVE = 13  # free features decided breadth-first: fewer, and calls outweigh arithmetic
LEAVES_AT_ONCE = 2**18  # when drawing
SECONDS_PER_SUPPORT = 5e-8


class _Link(NamedTuple):
    """What ties the feature decided to those that remain, one column a node.

    Given that it is in, its weight is Normal(centre - coupling' w, spread), w the remaining ones.
    """

    log_out: Array
    log_in: Array
    coupling: Array
    centre: Array
    spread: Array


class _Summary(NamedTuple):
    """Log mass and moments of the remaining features, one column a node.

    `first`, (2, l, N): inclusion probabilities and means. `cov`: lower triangle, row after row.
    """

    log_mass: Array
    first: Array
    cov: Array


@dataclass(frozen=True)
class _Tree:
    """The root. Its order: free features, then forced ones; decided from the last to the first."""

    xp: Any
    rows: tuple[Array, ...]  # row i: columns i..d-1 of R, then b; (d - i + 1, 1)
    log_in: tuple[float, ...]
    log_out: tuple[float, ...]
    scale: Array
    back: Array  # where each of the caller's features stands in the tree
    n_free: int
    block_level: int  # features left where breadth-first ends and blocks begin

    def zeros(self, *shape: int) -> Array:
        """Array of zeros where the root lives."""
        return self.xp.zeros(shape, dtype=self.scale.dtype, device=self.scale.device)

    def to_array(self, values: Any) -> Array:
        """Random numbers as an array where the root lives."""
        return self.xp.asarray(values, dtype=self.scale.dtype, device=self.scale.device)


@dataclass(frozen=True)
class Supports:
    """The exact posterior.

    `log_mass` is the log of the sum over supports of prior times evidence over the empty support's
    evidence; `log_evidence`, that of the target given, has not gone through that cancellation.
    The last two fields are for drawing: the log masses below the nodes where blocks begin, and
    what it takes to grow a block again.
    """

    log_mass: float
    log_evidence: float
    inclusion_probability: Array
    mean: Array
    covariance: Array
    block_log_mass: Array
    tree: _Tree


def seconds_expected(n_free: int) -> float:
    """Rough wall time with `n_free` features neither always in nor always out, for a refusal.

    Measured on a core with wide vectors, 22 rows; narrow vectors may double it.
    """
    return 1e-3 + SECONDS_PER_SUPPORT * 2.0**n_free


def enumerate_supports(
    *,
    factor: Array,
    target: Array,
    slab_variance: Array,
    log_in: Array,
    log_out: Array,
    on_block: Callable[[int, int], None] | None = None,
) -> Supports:
    """Sum over all supports, :eq:`support-evidence`.

    Keyword-only: a Gram matrix in place of `factor` would have a legal shape and a wrong meaning.

    Parameters
    ----------
    factor : Array, shape (n, d)
        X / s, or any matrix with the same Gram matrix X'X / s2. All arrays are float64.
    target : Array, shape (n,)
        y / s, or any vector with factor' target = X'y / s2.
    slab_variance, log_in, log_out : Array, shape (d,)
        Slab variances, log(p) and log(1 - p). A feature with `log_out` = -inf is always in and
        costs no branching; one with p = 0 has no place here.
    on_block : callable, optional
        Called as on_block(done, total) many times, evenly.
    """
    tree, log_within, log_beyond = _plant(factor, target, slab_variance, log_in, log_out)
    path, rows, links = _descend(tree, tree.rows, 1, factor.shape[1], tree.block_level)
    total = 2**tree.block_level
    ticks = (on_block(k, total) for k in range(1, total + 1)) if on_block else repeat(None)
    summary = _subtree(tree, rows, path.shape[0], tree.block_level, ticks)
    block_log_mass = path + summary.log_mass
    for level, link in enumerate(reversed(links), start=tree.block_level + 1):
        half = summary.log_mass.shape[0] // 2 if level <= tree.n_free else 0  # forced: no halves
        out = _Summary(*(field[..., : half or None] for field in summary))
        inside = _Summary(*(field[..., half:] for field in summary))
        summary = _fold(tree, out, inside, link, level)
    log_mass, moments = float(summary.log_mass[0]), _to_caller(tree, summary)
    return Supports(log_mass - log_within, log_mass + log_beyond, *moments, block_log_mass, tree)


def _plant(
    factor: Array, target: Array, slab_variance: Array, log_in: Array, log_out: Array
) -> tuple[_Tree, float, float]:
    """Root, and the target's log density within the features' span (unscaled) and beyond it."""
    xp, (n, d) = factor.__array_namespace__(), factor.shape
    order = xp.argsort(xp.astype(log_out == -inf, xp.int8))
    scale = xp.take(xp.sqrt(slab_variance), order)
    columns = xp.take(factor, order, axis=1) * scale
    r = xp.linalg.qr(xp.concat([columns, xp.expand_dims(target, axis=1)], axis=1)).R
    rows = tuple(xp.reshape(r[i, i:], (-1, 1)) for i in range(min(n, d)))
    within = sum(float(row[-1, 0]) ** 2 for row in rows)
    beyond = float(r[d, d]) ** 2 if n > d else 0.0
    n_free = sum(float(log_out[j]) > -inf for j in range(d))
    tree = _Tree(
        xp=xp,
        rows=rows,
        log_in=tuple(float(log_in[int(order[k])]) for k in range(d)),
        log_out=tuple(float(log_out[int(order[k])]) for k in range(d)),
        scale=scale,
        back=xp.argsort(order),
        n_free=n_free,
        block_level=max(n_free - FEATURES_ABOVE, 0),
    )
    return tree, -within / 2, -(beyond + n * log(2 * pi)) / 2


def _descend(
    tree: _Tree, roots: Sequence[Array], n_nodes: int, level: int, until: int
) -> tuple[Array, list[Array], list[_Link]]:
    """Decide features breadth-first until `until` remain: log mass of each path, rows, links.

    The nodes with the feature in follow those with it out. So the k-th free feature decided is
    the k-th binary digit of a node's number, counted above the digits of the nodes given.
    """
    xp, links = tree.xp, []
    path, rows = tree.zeros(n_nodes), [xp.asarray(row, copy=True) for row in roots]
    for now in range(level, until, -1):
        out, inside, link = _grow(tree, rows, now)
        if now > tree.n_free:
            path, rows = path + link.log_in, inside
        else:
            path = xp.concat([path + link.log_out, path + link.log_in])
            rows = [xp.concat(pair, axis=-1) for pair in zip(out, inside, strict=True)]
        links.append(link)
    return path, rows, links


def _grow(tree: _Tree, rows: list[Array], level: int) -> tuple[list[Array], list[Array], _Link]:
    """Decide the last column, :eq:`grow`: the rows with it out, with it in, and the link.

    Overwrites `rows`: those with the column out are views of them.
    """
    xp = tree.xp
    total = root = xp.ones_like(rows[0][0, :])  # 1 + squares of g from this row down; square root
    shift = tree.zeros(level, total.shape[0])  # g'R and g'b, likewise
    out, inside = [], []
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        g = xp.asarray(row[-2, :], copy=True)
        row[-2, :] = row[-1, :]  # the target takes the place of the column that leaves
        kept = row[:-1, :]
        total = total + g * g
        above, root = root, xp.sqrt(total)
        turned = kept * (above / root)
        turned[1:, :] -= (g / (above * root)) * shift[i + 1 :, :]
        shift[i:, :] += g * kept
        out.append(kept)
        inside.append(turned)
    log_out, log_in = tree.log_out[level - 1], tree.log_in[level - 1] - xp.log(total) / 2
    if len(rows) == level:  # the last row has lost its only column: nothing left can explain it
        log_out = log_out - out.pop(0)[0, :] ** 2 / 2
        log_in = log_in - inside.pop(0)[0, :] ** 2 / 2
    shift /= total
    return out[::-1], inside[::-1], _Link(log_out, log_in, shift[:-1, :], shift[-1, :], 1 / total)


def _fold(tree: _Tree, out: _Summary, inside: _Summary, link: _Link, level: int) -> _Summary:
    """Merge the children of a node, :eq:`fold`; the mass of `out` may be zero.

    Covariances follow the law of total covariance: second moments about zero would leave nothing
    of a variance that is 1e-16 of the squared mean.
    """
    xp, n_nodes = tree.xp, out.log_mass.shape[0]
    log_out, log_in = out.log_mass + link.log_out, inside.log_mass + link.log_in
    more_in, less = log_in > log_out, xp.exp(-xp.abs(log_in - log_out))
    major, minor = 1 / (1 + less), less / (1 + less)
    weight_out, weight_in = xp.where(more_in, minor, major), xp.where(more_in, major, minor)
    log_mass = xp.where(more_in, log_in, log_out) + xp.log1p(less)
    mean_in, old = inside.first[1, :, :], inside.cov.shape[0]
    pull = _symmetric_times(tree, inside.cov, link.coupling)
    jump = tree.zeros(level, n_nodes)  # means with the feature in, minus those with it out
    jump[:-1, :] = mean_in - out.first[1, :, :]
    jump[-1, :] = link.centre - xp.sum(link.coupling * mean_in, axis=0)
    first = tree.zeros(2, level, n_nodes)
    first[:, :-1, :] = weight_out * out.first + weight_in * inside.first
    first[:, -1, :] = xp.stack([weight_in, weight_in * jump[-1, :]])
    cov = tree.zeros(old + level, n_nodes)
    cov[:old, :] = weight_out * out.cov + weight_in * inside.cov
    cov[old:-1, :] = -weight_in * pull
    explained = xp.sum(link.coupling * pull, axis=0)
    cov[-1, :] = weight_in * (link.spread + xp.clip(explained, min=0))  # rounding may say < 0
    both = weight_out * weight_in
    for j, row in enumerate(_triangle(cov, level)):
        row[...] += (both * jump[j, :]) * jump[: j + 1, :]
    return _Summary(log_mass, first, cov)


def _triangle(packed: Array, level: int) -> list[Array]:
    """Views of the rows of a packed lower triangle."""
    return [packed[j * (j + 1) // 2 : (j + 1) * (j + 2) // 2, :] for j in range(level)]


def _symmetric_times(tree: _Tree, packed: Array, vector: Array) -> Array:
    """Packed symmetric matrix times vector, node by node."""
    result = tree.zeros(*vector.shape)
    for j, row in enumerate(_triangle(packed, vector.shape[0])):
        result[j, :] = tree.xp.sum(row * vector[: j + 1, :], axis=0)
        result[:j, :] += row[:-1, :] * vector[j, :]
    return result


def _subtree(
    tree: _Tree, rows: list[Array], n_nodes: int, level: int, ticks: Iterator[None]
) -> _Summary:
    """Summary of nodes with `level` free features left, depth-first."""
    if level == 0:
        next(ticks)
        return _Summary(tree.zeros(n_nodes), tree.zeros(2, 0, n_nodes), tree.zeros(0, n_nodes))
    out, inside, link = _grow(tree, rows, level)
    with_it = _subtree(tree, inside, n_nodes, level - 1, ticks)
    return _fold(tree, _subtree(tree, out, n_nodes, level - 1, ticks), with_it, link, level)


def _to_caller(tree: _Tree, summary: _Summary) -> tuple[Array, Array, Array]:
    """Root moments in the caller's order and units."""
    xp, d = tree.xp, tree.scale.shape[0]
    cov = tree.zeros(d, d)
    for j, row in enumerate(_triangle(summary.cov, d)):
        cov[j, : j + 1] = row[:, 0]
        cov[: j + 1, j] = row[:, 0]
    cov = cov * tree.scale * xp.expand_dims(tree.scale, axis=1)
    cov = xp.take(xp.take(cov, tree.back, axis=0), tree.back, axis=1)
    pip, mean = xp.clip(summary.first[0, :, 0], max=1), summary.first[1, :, 0] * tree.scale
    return xp.take(pip, tree.back), xp.take(mean, tree.back), cov


def draw_supports(supports: Supports, size: int, rng: Any) -> Array:
    """Draw weights from the exact posterior, :eq:`support-sampling`; (size, d).

    First a block, by the masses that enumeration left; then a support, from that block grown once
    more; then the weights on it, from the last feature decided back to the first. They are exactly
    zero where a feature is out. `rng` is a numpy.random.Generator, or anything with its methods
    `random` and `standard_normal`.
    """
    tree, step, codes = supports.tree, 2**FEATURES_ABOVE, _draw_codes(supports, size, rng)
    parts = [codes[k : min(k + step, size)] for k in range(0, max(size, 1), step)]
    return tree.xp.concat([_draw_weights(tree, part, rng) for part in parts])


def _draw_codes(supports: Supports, size: int, rng: Any) -> Array:
    """Draw supports, as numbers: the k-th binary digit is for the k-th free feature decided."""
    tree, xp, masses = supports.tree, supports.tree.xp, supports.block_log_mass
    level, n_blocks = tree.block_level, masses.shape[0]
    uniforms = tree.to_array(rng.random((2, size)))
    blocks = _invert(xp, masses, uniforms[0, :])
    order = xp.argsort(blocks)
    blocks, uniforms = xp.take(blocks, order), xp.take(uniforms[1, :], order)
    drawn = [(k, len(list(same))) for k, same in groupby(int(blocks[i]) for i in range(size))]
    _, rows, _ = _descend(tree, tree.rows, 1, tree.scale.shape[0], level)
    codes, at, step = [blocks[:0]], 0, max(1, LEAVES_AT_ONCE >> level)
    for first in range(0, len(drawn), step):
        some = drawn[first : first + step]
        index = xp.asarray([k for k, _ in some], dtype=xp.int64)
        roots = [xp.take(row, index, axis=-1) for row in rows]
        path, _, _ = _descend(tree, roots, len(some), level, 0)
        leaves = xp.reshape(path, (-1, len(some)))
        for column, (k, count) in enumerate(some):
            codes.append(k + n_blocks * _invert(xp, leaves[:, column], uniforms[at : at + count]))
            at += count
    return xp.take(xp.concat(codes), xp.argsort(order))


def _invert(xp: Any, log_mass: Array, uniforms: Array) -> Array:
    """Draw positions in proportion to their mass, from uniform numbers."""
    mass = xp.cumulative_sum(xp.exp(log_mass - xp.max(log_mass)))
    at = xp.searchsorted(mass, uniforms * mass[-1], side="right")
    return xp.minimum(at, xp.asarray(mass.shape[0] - 1, dtype=at.dtype))


def _draw_weights(tree: _Tree, codes: Array, rng: Any) -> Array:
    """Draw the weights of given supports: a feature that is out grows as a column of zeros."""
    xp, d, size = tree.xp, tree.scale.shape[0], codes.shape[0]
    rows, steps = [row + tree.zeros(1, size) for row in tree.rows], []
    for level in range(d, 0, -1):
        mask = tree.zeros(size) + 1
        if level <= tree.n_free:
            mask = xp.astype(codes // 2 ** (tree.n_free - level) % 2, mask.dtype)
        for row in rows:
            row[-2, :] *= mask
        _, rows, link = _grow(tree, rows, level)
        steps.append((mask, link))
    normals, weights = tree.to_array(rng.standard_normal((d, size))), tree.zeros(d, size)
    for j, (mask, link) in enumerate(reversed(steps)):
        mean = link.centre - xp.sum(link.coupling * weights[:j, :], axis=0)
        weights[j, :] = mask * (mean + xp.sqrt(link.spread) * normals[j, :])
    weights = weights * xp.expand_dims(tree.scale, axis=1)
    return xp.permute_dims(xp.take(weights, tree.back, axis=0), (1, 0))
