//! Tests of `cob-forecast` with generations that this crate makes.

mod diff_test;
mod explored_test;
mod faults_test;
mod plans_test;
mod switch_order_test;
