//! Tests of the solver from outside: worked examples, brute force, clusters that grow, hostile requests.

mod brute;
mod build;
mod exact;
mod growth;
mod hostile;
mod large;
mod loom;
mod random;
mod shapes;
