//! The page of `cobctl page`: a server on this machine that shows the cluster in a browser.
//!
//! ```text
//! daemons --> [live](crate::live) --> [picture]: what changed --> [feed]: each tab's stream  \
//!                        depot -----> [layout]: places of the graph --/                       [serve] <-- [door]: who may ask
//! browser's question or order --> [question]: a command line --> [worker]: runs the command  /
//! browser's editor --> [model]: files, and a language server ------------------------------/
//! browser's switch --> [faults]: a trial of each fault --------------------------------------/
//! ```
//!
//! The server speaks to the daemons as the operator who started it, with the operator's key and rights. It listens on the
//! loopback address only, and no host opens a port for it. Answers to questions are the documents of the commands'
//! `--json`; orders are commands, too, so the page can't do anything that `cobctl` or
//! `cobgen` refuses. Sources of the browser's
//! program: `cobd/ctl/page/`.

pub(crate) mod door;
pub(crate) mod faults;
pub(crate) mod feed;
pub(crate) mod layout;
pub(crate) mod message;
pub(crate) mod model;
pub(crate) mod picture;
pub(crate) mod question;
pub(crate) mod serve;
pub(crate) mod worker;
