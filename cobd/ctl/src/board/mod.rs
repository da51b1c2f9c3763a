//! The board of `cobctl watch`: the cluster on a full screen.
//!
//! ```text
//! daemons --> [live](crate::live) --> News \
//! keys, size of the terminal, time -------> [state]: the board --> [draw]: a frame --> [tty]: the terminal
//! answers of commands --------------------/        \--> questions --> the worker of [page](crate::page)
//! ```
//!
//! The board is a pure function of its events; `commands/watch/full.rs` connects it to the terminal, the daemons and the
//! commands. Its data is the picture of [`cobctl page`](crate::page), and its explanations are those of `cobctl explain`.

pub(crate) mod cluster;
pub(crate) mod draw;
pub(crate) mod keys;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod question;
pub(crate) mod state;
pub(crate) mod switch;
pub(crate) mod text;
pub(crate) mod tty;

#[cfg(test)]
mod tests;
