//! The clauses that are checked: the rules of the specifications as a client can see them kept.
//!
//! Sources: DPWS 1.1, WS-Discovery 1.1 and SOAP-over-UDP 1.1 (OASIS, 1 July 2009), WS-Addressing 1.0 and SOAP 1.2
//! (W3C), WS-Eventing (W3C submission, March 2006), WS-Transfer and WS-MetadataExchange (September 2004). The
//! numbers are those of `docs/evidence/dpws-conformance.md`, which says how far they can be trusted.

use std::fmt;

/// How strongly a specification demands a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A "must": the device is not conformant, and peers may fail.
    Must,
    /// A "should": the device is conformant, and some peers may fail.
    Should,
}

impl Severity {
    /// The word of the specifications.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One rule of a specification.
#[derive(Debug, PartialEq, Eq)]
pub struct Clause {
    /// The number in the profile, or a short name with the section.
    pub id: &'static str,
    /// The specification.
    pub source: &'static str,
    /// How strongly it is demanded.
    pub severity: Severity,
    /// The rule in our words.
    pub rule: &'static str,
}

macro_rules! clauses {
    ($($name:ident $id:literal $source:ident $severity:ident $rule:literal)*) => {
        $(pub(super) static $name: Clause = Clause {
            id: $id, source: $source, severity: Severity::$severity, rule: $rule,
        };)*
        /// All clauses, by specification.
        pub static CLAUSES: &[&Clause] = &[$(&$name),*];
    };
}

const DPWS: &str = "DPWS 1.1";
const DISCOVERY: &str = "WS-Discovery 1.1";
const UDP: &str = "SOAP-over-UDP 1.1";
const ADDRESSING: &str = "WS-Addressing 1.0";
const EVENTING: &str = "WS-Eventing";
const TRANSFER: &str = "WS-Transfer";
const EXCHANGE: &str = "WS-MetadataExchange";
const SOAP: &str = "SOAP 1.2";
const XML: &str = "Namespaces in XML";

clauses! {
    CHUNKED "R0001" DPWS Must "a request in chunked transfer coding is understood"
    LARGE "R0003" DPWS Must "an envelope above 32,767 bytes is answered or refused, and the device stays usable"
    URN "R0004" DPWS Should "the device's endpoint is a urn:uuid"
    SAME_ENDPOINT "R0005" DPWS Must "discovery and metadata name the same endpoint"
    NO_PARAMETERS "R0007" DPWS Should "the device's endpoint has no reference parameters"
    ON_CONNECTION "R0013" DPWS Must "a request is answered on its connection"
    RELATED "R0019" DPWS Must "an answer relates to its request"
    LONG_URI "R0027" DPWS Should "no URI has more than 2,048 bytes"
    DATAGRAM_SIZE "R0029" DPWS Should "a datagram fits into the MTU of 1,500 bytes"
    REPLY_ELSEWHERE "R0031" DPWS Must "a reply address that is not anonymous: fault InvalidAddressingHeader"
    SOAP_12 "R0034" DPWS Must "messages are envelopes of SOAP 1.2"
    FAULT_RELATED "R0040" DPWS Must "a fault relates to its request"
    HOSTED_HTTP "R0042" DPWS Must "hosted services have HTTP addresses"
    HTTP_PROBE "R1015" DPWS Must "a Probe sent by HTTP is answered by ProbeMatches"
    DEVICE_TYPE "R1020" DPWS Must "the types of the device contain dpws:Device"
    HTTP_MATCH "R1021" DPWS Must "the answer to a Probe by HTTP that matches contains the device"
    HTTP_NO_MATCH "R1022" DPWS Must "the answer to a Probe by HTTP that does not match is empty"
    WSDL_BINDING "R2020" DPWS Must "each port type has a binding of SOAP 1.2"
    WSDL_LITERAL "R2019" DPWS Must "each port type has a document-literal binding"
    WSDL_OFFERED "R2031" DPWS Must "a service offers its WSDL in its metadata"
    WSDL_READABLE "R2031-document" DPWS Must "the WSDL of a service can be read"
    WSDL_TYPES "R2031-types" DPWS Should "the WSDL has each port type that the service lists"
    THIS_MODEL "R2038" DPWS Must "the answer to Get has one section ThisModel"
    THIS_DEVICE "R2039" DPWS Must "the answer to Get has one section ThisDevice"
    RELATIONSHIP "R2040" DPWS Must "the answer to Get has a section Relationship with the host"
    ONE_METADATA "R2044" DPWS Must "the answer to Get has one wsx:Metadata"
    MANUFACTURER "DPWS-4.1-manufacturer" DPWS Must "ThisModel names the manufacturer"
    MODEL_NAME "DPWS-4.1-model" DPWS Must "ThisModel names the model"
    FRIENDLY_NAME "DPWS-4.2-name" DPWS Must "ThisDevice has a friendly name"
    FIELD_LENGTH "DPWS-B-field" DPWS Must "text fields have fewer than 256 characters"
    SERVICE_ID "DPWS-4.3-id" DPWS Must "each hosted service has a ServiceId, and no two the same"
    HOSTED_TYPES "DPWS-4.3-types" DPWS Must "each hosted service lists its types"
    PUSH "R3009" DPWS Must "push delivery is granted"
    FILTERED "R3011" DPWS Must "only the actions of the filter are delivered"
    DURATION "R3016" DPWS Must "a lease asked for as a duration is granted as a duration"
    NO_SUCH_ACTION "R3020" DPWS Must "a filter without an offered action: fault FilterActionNotSupported"

    MATCHES "WSD-5.3-match" DISCOVERY Must "a multicast Probe that matches is answered"
    MATCH_MESSAGE "WSD-5.3-message" DISCOVERY Must "its answer is a valid ProbeMatches"
    MATCH_RELATES "WSD-5.3-relates" DISCOVERY Must "ProbeMatches relates to the Probe"
    METADATA_VERSION "WSD-5.3-version" DISCOVERY Must "a match has a MetadataVersion"
    OTHER_TYPE "WSD-5.1-type" DISCOVERY Must "a multicast Probe for another type is met with silence"
    ALL_TYPES "WSD-5.1-types" DISCOVERY Must "a Probe matches only if all of its types do"
    OTHER_SCOPE "WSD-5.1-scope" DISCOVERY Must "a multicast Probe for another scope is met with silence"
    OWN_SCOPE "WSD-5.1-own-scope" DISCOVERY Must "a Probe for one of the device's scopes is answered"
    OTHER_RULE "WSD-5.1-rule" DISCOVERY Must "a multicast Probe by an unknown rule is met with silence"
    RESOLVES "WSD-6.3-match" DISCOVERY Must "a Resolve of the device is answered by ResolveMatches"
    RESOLVE_RELATES "WSD-6.3-relates" DISCOVERY Must "ResolveMatches relates to the Resolve"
    RESOLVE_ADDRESS "WSD-6.3-addresses" DISCOVERY Must "ResolveMatches has transport addresses"
    RESOLVE_OTHER "WSD-6.2-other" DISCOVERY Must "a Resolve of another endpoint is met with silence"
    APP_SEQUENCE "WSD-7-sequence" DISCOVERY Must "answers to multicast carry AppSequence"
    MESSAGE_NUMBER "WSD-7-number" DISCOVERY Must "no two messages have the same MessageNumber"
    INSTANCE "WSD-7-instance" DISCOVERY Must "InstanceId stays the same while the device runs"

    UDP_COPIES "UDP-4-copies" UDP Must "copies of a datagram are equal"
    UDP_ONCE "UDP-4-once" UDP Should "a repeated question is answered once"

    GET_ACTION "WXF-3.1-action" TRANSFER Must "the answer to Get has the action GetResponse"
    METADATA_ACTION "MEX-5-action" EXCHANGE Must "the answer to GetMetadata has the action GetMetadata/Response"
    SECTION_DIALECT "MEX-5-dialect" EXCHANGE Must "GetMetadata with a dialect is answered by sections of this dialect"

    UNKNOWN_ACTION "WSA-SOAP-6.4.4" ADDRESSING Must "an unknown action: fault ActionNotSupported"
    NO_ACTION "WSA-SOAP-6.4.2-action" ADDRESSING Must "a message without action: fault MessageAddressingHeaderRequired"
    NO_MESSAGE_ID "WSA-SOAP-6.4.2-id" ADDRESSING Must "a request without MessageID: fault MessageAddressingHeaderRequired"
    TWICE "WSA-SOAP-6.4.1-twice" ADDRESSING Must "a repeated header: fault InvalidAddressingHeader"
    FAULT_ACTION "WSA-SOAP-6-action" ADDRESSING Should "a fault has the action of the specification that defines it"
    PARAMETERS "WSA-2.3-parameters" ADDRESSING Must "reference parameters are sent as headers"
    PARAMETERS_MARKED "WSA-SOAP-3.3-marked" ADDRESSING Must "reference parameters are marked with IsReferenceParameter"

    MEDIA_TYPE "SOAP-2-7.1-media" SOAP Must "messages have the media type application/soap+xml"
    FAULT_STATUS "SOAP-2-7.5-status" SOAP Must "a fault of the sender has status 400, others have 500"
    OTHER_MEDIA "SOAP-2-7.5-415" SOAP Should "a message of another media type: status 415"
    MALFORMED "SOAP-2-7.5-malformed" SOAP Must "a text that is not XML is refused, and the device stays usable"
    MUST_UNDERSTAND "SOAP-1-5.4.8" SOAP Must "a mandatory header that is not understood: fault MustUnderstand"
    NOT_UNDERSTOOD "SOAP-1-5.4.8-named" SOAP Should "that fault names the header"
    VERSION "SOAP-1-5.4.7" SOAP Must "another version of SOAP: fault VersionMismatch"
    UPGRADE "SOAP-1-5.4.7-upgrade" SOAP Should "that fault names the supported version"
    OTHER_ROLE "SOAP-1-2.4-role" SOAP Must "a mandatory header for another role is ignored"
    OPTIONAL_HEADER "SOAP-1-2.4-optional" SOAP Must "an unknown header that is not mandatory is ignored"
    PREFIXES "NS-prefixes" XML Must "other prefixes for the same names make no difference"

    SUBSCRIBED "WSE-3.1-response" EVENTING Must "SubscribeResponse has its action, manager and lease"
    MANAGER_HTTP "WSE-3.1-manager" EVENTING Must "the subscription manager has an HTTP address"
    DISTINCT "WSE-3.1-distinct" EVENTING Must "two subscriptions can be told apart by their managers"
    OTHER_MODE "WSE-3.1-mode" EVENTING Must "another delivery mode: fault DeliveryModeRequestedUnavailable"
    OTHER_FILTER "WSE-3.1-filter" EVENTING Must "an unknown filter dialect: fault FilteringRequestedUnavailable"
    NO_TIME "WSE-3.1-expires" EVENTING Must "a lease of no time: fault InvalidExpirationTime"
    NO_SINK "WSE-3.1-sink" EVENTING Must "Subscribe without NotifyTo: a fault of the sender"
    EXPIRED "WSE-3.1-expired" EVENTING Must "a subscription whose lease has expired cannot be renewed"
    RENEWED "WSE-3.2-response" EVENTING Must "Renew is answered by RenewResponse with the lease"
    UNKNOWN "WSE-3.2-unknown" EVENTING Must "Renew of an unknown subscription: a fault"
    STATUS "WSE-3.3-rest" EVENTING Must "GetStatus, where it is answered, gives no more than the granted lease"
    UNSUBSCRIBED "WSE-3.4-response" EVENTING Must "Unsubscribe is answered by UnsubscribeResponse"
    SILENT "WSE-3.4-silence" EVENTING Must "no notification follows an Unsubscribe"
    NOTIFY_ACTION "WSE-4-action" EVENTING Must "notifications have an action of the service's WSDL"
    NOTIFY_TO "WSE-4-to" EVENTING Must "notifications are addressed to NotifyTo"
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_clause_has_its_own_identifier() {
        let ids: HashSet<_> = CLAUSES.iter().map(|clause| clause.id).collect();
        assert_eq!(ids.len(), CLAUSES.len());
    }
}
