//! One suite for all stores, and what is special to each.

mod embedded;
mod etcd;
mod kills;
mod linear;
mod members;
mod suite;
mod watches;
