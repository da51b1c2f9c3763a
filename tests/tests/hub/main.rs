//! A real hub with real programs: `cobhub`, `cobgen`, `cobctl`, `cobd` and a provider of machines with faults.

mod faults;
mod story;
mod yard;
