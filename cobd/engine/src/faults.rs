//! Faults that tests plant in an engine.

/// Faults that tests plant, to prove that the checks notice them. Without the feature `planted-faults` there are no
/// faults.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// No probe is ever sent.
    #[cfg(feature = "planted-faults")]
    pub no_probes: bool,
    /// Grants are sent without a record.
    #[cfg(feature = "planted-faults")]
    pub grants_not_durable: bool,
    /// A grant counts under any number.
    #[cfg(feature = "planted-faults")]
    pub takes_any_grant: bool,
    /// The hello does not name the locks of a running action.
    #[cfg(feature = "planted-faults")]
    pub hello_names_nothing: bool,
    /// A restart forgets a running action.
    #[cfg(feature = "planted-faults")]
    pub forgets_actions: bool,
    /// The locks under a grant are not recorded with it.
    #[cfg(feature = "planted-faults")]
    pub forgets_locks_under_grants: bool,
    /// A budget grants a token to every member.
    #[cfg(feature = "planted-faults")]
    pub gives_any_number: bool,
    /// A failed member releases its token if it still serves.
    #[cfg(feature = "planted-faults")]
    pub failed_give_tokens_back: bool,
    /// A restart forgets the token under which a member left its state.
    #[cfg(feature = "planted-faults")]
    pub forgets_tokens: bool,
    /// A departure does not wait for the departures before it.
    #[cfg(feature = "planted-faults")]
    pub ignores_after: bool,
    /// A host does not wait for departures on other hosts.
    #[cfg(feature = "planted-faults")]
    pub ignores_waits: bool,
    /// Releases by change objects of a reinstalled host are remembered under its old numbers.
    #[cfg(feature = "planted-faults")]
    pub keeps_numbers: bool,
    /// Repeated requests are never delayed.
    #[cfg(feature = "planted-faults")]
    pub asks_without_end: bool,
    /// A request of another host counts even if no dependency justifies it.
    #[cfg(feature = "planted-faults")]
    pub believes_any_asker: bool,
}

impl Faults {
    /// A fault is planted that lets records and engine differ.
    pub(crate) fn let_records_differ(&self) -> bool {
        self.grants_not_durable() || self.forgets_actions() || self.takes_any_grant() || self.forgets_tokens()
    }
}

macro_rules! faults {
    ($($name:ident),*) => {
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
faults!(
    no_probes,
    grants_not_durable,
    takes_any_grant,
    hello_names_nothing,
    forgets_actions,
    forgets_locks_under_grants,
    gives_any_number,
    failed_give_tokens_back,
    forgets_tokens,
    ignores_after,
    ignores_waits,
    keeps_numbers,
    asks_without_end,
    believes_any_asker
);
