//! Whether the model still has a change object, and how far its departure is.

/// The lifecycle of a change object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// The generation that this host follows has it.
    Present,
    /// The generation that this host switches to lacks it.
    Departing {
        /// Others depart before it: until then it does not move by itself.
        held_back: bool,
        /// An operator has declared it departed, in any state.
        declared: bool,
    },
    /// It has departed and never moves, unless the switch is abandoned.
    Departed {
        /// By an operator's order, in any state.
        declared: bool,
    },
}

impl Lifecycle {
    pub(crate) const DEPARTING: Self = Self::Departing { held_back: false, declared: false };

    /// The next generation lacks it: it departs, or has departed.
    pub(crate) fn is_departing(self) -> bool {
        self != Self::Present
    }

    pub(crate) fn is_departed(self) -> bool {
        matches!(self, Self::Departed { .. })
    }

    pub(crate) fn is_declared(self) -> bool {
        matches!(self, Self::Departing { declared: true, .. } | Self::Departed { declared: true })
    }

    pub(crate) fn is_held_back(self) -> bool {
        matches!(self, Self::Departing { held_back: true, .. })
    }

    /// It departs no further: it has departed, or an operator has declared it departed.
    pub(crate) fn is_over(self) -> bool {
        self.is_departed() || self.is_declared()
    }

    /// Whether others depart before it.
    pub(crate) fn hold_back(&mut self, other: bool) {
        if let Self::Departing { held_back, .. } = self {
            *held_back = other;
        }
    }

    /// An operator declares it departed.
    pub(crate) fn declare(&mut self) {
        match self {
            Self::Present => {}
            Self::Departing { declared, .. } | Self::Departed { declared } => *declared = true,
        }
    }

    /// It has departed.
    pub(crate) fn depart(&mut self) {
        if let Self::Departing { declared, .. } = *self {
            *self = Self::Departed { declared };
        }
    }
}
