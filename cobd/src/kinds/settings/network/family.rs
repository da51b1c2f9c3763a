//! The two families of addresses of a content.

use cob_kinds::{Dhcp, Interface};

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn name(self) -> &'static str {
        if self == Self::V4 { "IPv4" } else { "IPv6" }
    }

    pub(super) fn has(self, address: &str) -> bool {
        address.contains(':') == (self == Self::V6)
    }

    pub(super) fn of(self, all: &[String]) -> impl Iterator<Item = &String> {
        all.iter().filter(move |text| self.has(text))
    }

    pub(super) fn addresses(self, content: &Interface) -> Vec<&String> {
        self.of(&content.addresses).collect()
    }

    pub(super) fn has_dhcp(self, content: &Interface) -> bool {
        let other = if self == Self::V4 { Dhcp::Ipv6 } else { Dhcp::Ipv4 };
        content.dhcp.is_some_and(|dhcp| dhcp != other)
    }
}
