//! A plan for people and for other programs: in words, as a graph, as a picture.

mod dot;
mod gantt;
mod paint;
mod words;

pub use dot::to_dot;
pub use gantt::{Bar, Chart, chart, to_svg};
pub use paint::painted;
pub use words::{in_words, time};
