//! Integration tests of the solver: worked examples, brute force, growing clusters, hostile requests.

mod brute;
mod build;
mod exact;
mod growth;
mod hostile;
mod large;
mod loom;
mod random;
mod shapes;
