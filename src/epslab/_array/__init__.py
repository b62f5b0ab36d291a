"""The only package that may name an array library.

Everything above speaks the Python array API standard through a namespace ``xp`` obtained from
`namespace_of`; what the standard lacks is a named function here.
"""

from epslab._array._linalg import (
    NotPositiveDefinite,
    add_gram,
    cholesky,
    cholesky_of_psd_plus,
    empty_square,
    invert_lower,
    product,
    scaled_columns,
    solve_lower,
    solve_lower_transposed,
    solve_positive,
    squared_column_norms,
    whiten_columns,
)
from epslab._array._namespace import (
    Array,
    Namespace,
    as_real_array,
    as_sparse_columns,
    device_of,
    is_sparse,
    namespace_of,
    quiet,
    to_numpy,
)
from epslab._array._random import Generator, generator, standard_normal
from epslab._array._special import expit, log1m, log_add_exp, log_of

__all__ = [
    "Array",
    "Generator",
    "Namespace",
    "NotPositiveDefinite",
    "add_gram",
    "as_real_array",
    "as_sparse_columns",
    "cholesky",
    "cholesky_of_psd_plus",
    "device_of",
    "empty_square",
    "expit",
    "generator",
    "invert_lower",
    "is_sparse",
    "log1m",
    "log_add_exp",
    "log_of",
    "namespace_of",
    "product",
    "quiet",
    "scaled_columns",
    "solve_lower",
    "solve_lower_transposed",
    "solve_positive",
    "squared_column_norms",
    "standard_normal",
    "to_numpy",
    "whiten_columns",
]
