//! A real hub with real programs: `cobhub`, `cobgen`, `cobctl`, `cobd` and a provider of machines with faults.

mod attacks;
mod circle;
mod etcd;
mod exchange;
mod faults;
mod kills;
mod log_in;
mod log_in_elsewhere;
mod queue;
mod story;
mod yard;
