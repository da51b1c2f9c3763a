//! Faults that tests plant in an engine.

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Faults that tests plant, to prove that the checks notice them. Without the feature `planted-faults` there
        /// are no faults.
        #[derive(Debug, Clone, Default)]
        pub struct Faults {
            $($(#[$doc])* #[cfg(feature = "planted-faults")] pub $name: bool,)*
        }

        impl Faults {
            $(#[cfg(feature = "planted-faults")]
            pub(crate) fn $name(&self) -> bool {
                self.$name
            }
            #[cfg(not(feature = "planted-faults"))]
            pub(crate) const fn $name(&self) -> bool {
                false
            })*
        }
    };
}

faults! {
    /// No probe is ever sent.
    no_probes,
    /// Grants are sent without a record.
    grants_not_durable,
    /// A grant counts under any number.
    takes_any_grant,
    /// The hello does not name the locks of a running action.
    hello_names_nothing,
    /// A restart forgets a running action.
    forgets_actions,
    /// The locks under a grant are not recorded with it.
    forgets_locks_under_grants,
    /// A budget grants a token to every member.
    gives_any_number,
    /// A failed member releases its token if it still serves.
    failed_give_tokens_back,
    /// A restart forgets the token under which a member left its state.
    forgets_tokens,
    /// A departure does not wait for the departures before it.
    ignores_after,
    /// A host does not wait for departures on other hosts.
    ignores_waits,
    /// Releases by change objects of a reinstalled host are remembered under its old numbers.
    keeps_numbers,
    /// Repeated requests are never delayed.
    asks_without_end,
    /// A request of another host counts even if no dependency justifies it.
    believes_any_asker,
}

impl Faults {
    /// A fault is planted that lets records and engine differ.
    #[must_use]
    pub fn let_records_differ(&self) -> bool {
        self.grants_not_durable() || self.forgets_actions() || self.takes_any_grant() || self.forgets_tokens()
    }
}
