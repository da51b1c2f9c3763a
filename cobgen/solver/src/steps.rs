//! The budget: counts down steps, which are the same on every machine.

/// The steps did not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfSteps;

/// The remaining budget.
#[derive(Debug)]
pub(crate) struct Steps {
    left: u64,
}

impl Steps {
    pub(crate) const fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Spends this many elementary operations.
    pub(crate) fn spend(&mut self, steps: u64) -> Result<(), OutOfSteps> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(OutOfSteps)
            }
        }
    }
}
