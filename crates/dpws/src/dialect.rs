//! The two dialects of the Devices Profile and all names in which they differ.

use chappe_soap::AddressingVersion;
use chappe_xml::{Name, Str};

/// A family of specification versions that are used together.
///
/// Sources: WS-Discovery April 2005 and DPWS February 2006 for [`V2005`](Self::V2005);
/// WS-Discovery 1.1 and DPWS 1.1 (OASIS, 1 July 2009) for [`V2009`](Self::V2009).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Dialect {
    /// Windows, printers, cameras: WS-Discovery 2005/04, WS-Addressing 2004/08, DPWS 2006/02.
    V2005,
    /// SDC and Chappe's own devices: WS-Discovery 1.1, WS-Addressing 2005/08, DPWS 1.1.
    #[default]
    V2009,
}

impl Dialect {
    /// Both dialects, the newer first.
    pub const ALL: [Self; 2] = [Self::V2009, Self::V2005];

    /// The namespace of WS-Discovery.
    #[must_use]
    pub const fn discovery(self) -> &'static str {
        match self {
            Self::V2005 => "http://schemas.xmlsoap.org/ws/2005/04/discovery",
            Self::V2009 => "http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01",
        }
    }

    /// The namespace of DPWS.
    #[must_use]
    pub const fn dpws(self) -> &'static str {
        match self {
            Self::V2005 => "http://schemas.xmlsoap.org/ws/2006/02/devprof",
            Self::V2009 => "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01",
        }
    }

    /// The version of WS-Addressing.
    #[must_use]
    pub const fn addressing(self) -> AddressingVersion {
        match self {
            Self::V2005 => AddressingVersion::V200408,
            Self::V2009 => AddressingVersion::V200508,
        }
    }

    /// `To` of messages to the multicast group.
    #[must_use]
    pub const fn multicast_to(self) -> &'static str {
        match self {
            Self::V2005 => "urn:schemas-xmlsoap-org:ws:2005:04:discovery",
            Self::V2009 => "urn:docs-oasis-open-org:ws-dd:ns:discovery:2009:01",
        }
    }

    /// The prefixes written for this dialect's names, since some devices accept no others.
    ///
    /// Order: prefix, namespace. SOAP (`soap`) and WS-Addressing (`wsa`) are the envelope's own.
    #[must_use]
    pub const fn prefixes(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::V2005 => [("wsd", self.discovery()), ("wsdp", self.dpws())],
            Self::V2009 => [("d", self.discovery()), ("dpws", self.dpws())],
        }
    }

    /// A name in the namespace of WS-Discovery.
    #[must_use]
    pub const fn discovery_name(self, local: &'static str) -> Name {
        Name::new(self.discovery(), local)
    }

    /// A name in the namespace of DPWS.
    #[must_use]
    pub const fn dpws_name(self, local: &'static str) -> Name {
        Name::new(self.dpws(), local)
    }

    /// The type that every DPWS device has.
    #[must_use]
    pub const fn device_type(self) -> Name {
        self.dpws_name("Device")
    }

    /// The type of a discovery proxy.
    #[must_use]
    pub const fn proxy_type(self) -> Name {
        self.discovery_name("DiscoveryProxy")
    }

    /// The action URI of a discovery message such as `Probe`, or `fault`.
    #[must_use]
    pub fn discovery_action(self, local: &str) -> Str {
        format!("{}/{local}", self.discovery()).into()
    }

    /// The action URI of a DPWS fault.
    #[must_use]
    pub fn dpws_fault_action(self) -> Str {
        format!("{}/fault", self.dpws()).into()
    }

    /// Splits a discovery action into its dialect and last segment.
    #[must_use]
    pub fn of_discovery_action(action: &str) -> Option<(Self, &str)> {
        Self::ALL.into_iter().find_map(|dialect| {
            let local = action
                .strip_prefix(dialect.discovery())?
                .strip_prefix('/')?;
            Some((dialect, local))
        })
    }

    /// The dialect that owns a namespace of WS-Discovery or DPWS.
    #[must_use]
    pub fn of_namespace(namespace: &str) -> Option<Self> {
        let owns = |dialect: &Self| [dialect.discovery(), dialect.dpws()].contains(&namespace);
        Self::ALL.into_iter().find(owns)
    }

    /// Moves a WS-Discovery or DPWS name of either dialect into this one; other names stay.
    ///
    /// This lets a caller search for `dpws:Device` in both dialects.
    #[must_use]
    pub fn translate(self, name: &Name) -> Name {
        let mut name = name.clone();
        for other in Self::ALL {
            if name.namespace == other.dpws() {
                name.namespace = self.dpws().into();
            } else if name.namespace == other.discovery() {
                name.namespace = self.discovery().into();
            }
        }
        name
    }
}

/// WS-Transfer (September 2004), the same in both dialects.
pub const TRANSFER: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer";
/// WS-MetadataExchange (September 2004), the same in both dialects.
pub const METADATA_EXCHANGE: &str = "http://schemas.xmlsoap.org/ws/2004/09/mex";
/// WS-Eventing (August 2004), the same in both dialects.
pub const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_action_identifies_dialect() {
        for dialect in Dialect::ALL {
            let action = dialect.discovery_action("Probe");
            assert_eq!(
                Dialect::of_discovery_action(&action),
                Some((dialect, "Probe"))
            );
        }
        assert_eq!(Dialect::of_discovery_action("urn:other/Probe"), None);
        let without_separator = format!("{}Probe", Dialect::V2009.discovery());
        assert_eq!(Dialect::of_discovery_action(&without_separator), None);
    }

    #[test]
    fn translation_changes_only_profile_names() {
        let device = Dialect::V2009.device_type();
        assert_eq!(
            Dialect::V2005.translate(&device),
            Dialect::V2005.device_type()
        );
        assert_eq!(Dialect::V2009.translate(&device), device);
        let camera = Name::new("http://www.onvif.org/ver10/device/wsdl", "Device");
        assert_eq!(Dialect::V2005.translate(&camera), camera);
    }
}
