//! Packets of MQTT 5.0 and 3.1.1 with the same meaning, and what answers to them mean.

use mqtt::packet::{
    MaximumQos, Packet, Property, Qos, ReceiveMaximum, SessionExpiryInterval, UserProperty, v3_1_1,
    v5_0,
};
use mqtt::result_code::{MqttError, PubackReasonCode};
use mqtt_protocol_core::mqtt;

use super::session::{Opening, Outcome, Publication, Version};

/// The packet that opens a session.
pub(super) fn connect(opening: &Opening, receive_maximum: u16) -> Result<Packet, MqttError> {
    match opening.version {
        Version::V3 => {
            let mut packet = v3_1_1::Connect::builder()
                .client_id(opening.client_id.as_str())?
                .keep_alive(opening.keep_alive_s)
                .clean_session(opening.session_s == 0);
            if let Some(user) = &opening.user {
                packet = packet.user_name(user.as_str())?;
            }
            if let Some(password) = &opening.password {
                packet = packet.password(password.clone().into_bytes())?;
            }
            if let Some(will) = &opening.will {
                let (topic, payload) = (will.topic.as_str(), will.payload.clone());
                packet = packet.will_message(topic, payload, Qos::AtLeastOnce, will.is_retained)?;
            }
            Ok(packet.build()?.into())
        }
        Version::V5 => {
            let properties = vec![
                Property::from(SessionExpiryInterval::new(opening.session_s)?),
                Property::from(ReceiveMaximum::new(receive_maximum.max(1))?),
            ];
            let mut packet = v5_0::Connect::builder()
                .client_id(opening.client_id.as_str())?
                .keep_alive(opening.keep_alive_s)
                .clean_start(opening.session_s == 0)
                .props(properties);
            if let Some(user) = &opening.user {
                packet = packet.user_name(user.as_str())?;
            }
            if let Some(password) = &opening.password {
                packet = packet.password(password.clone().into_bytes())?;
            }
            if let Some(will) = &opening.will {
                let (topic, payload) = (will.topic.as_str(), will.payload.clone());
                packet = packet.will_message(topic, payload, Qos::AtLeastOnce, will.is_retained)?;
            }
            Ok(packet.build()?.into())
        }
    }
}

/// The packet of a message.
pub(super) fn publication(
    version: Version,
    message: Publication,
    qos: u8,
    packet_id: Option<u16>,
) -> Result<Packet, MqttError> {
    match version {
        Version::V3 => {
            let mut packet = v3_1_1::Publish::builder()
                .topic_name(message.topic)?
                .qos(service(qos))
                .retain(message.is_retained)
                .payload(message.payload);
            if let Some(packet_id) = packet_id {
                packet = packet.packet_id(packet_id);
            }
            Ok(packet.build()?.into())
        }
        Version::V5 => {
            let mut packet = v5_0::Publish::builder()
                .topic_name(message.topic)?
                .qos(service(qos))
                .retain(message.is_retained)
                .payload(message.payload);
            if let Some((name, value)) = message.property {
                packet = packet.props(vec![UserProperty::new(name, value)?.into()]);
            }
            if let Some(packet_id) = packet_id {
                packet = packet.packet_id(packet_id);
            }
            Ok(packet.build()?.into())
        }
    }
}

/// A quality of service.
pub(super) const fn service(qos: u8) -> Qos {
    match qos {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        _ => Qos::ExactlyOnce,
    }
}

/// The highest quality of service that a broker takes.
pub(super) fn maximum(property: &MaximumQos) -> u8 {
    property.val()
}

/// What became of a message, by the broker's answer.
pub(super) fn outcome(code: PubackReasonCode) -> Outcome {
    match code {
        PubackReasonCode::Success | PubackReasonCode::NoMatchingSubscribers => Outcome::Taken,
        PubackReasonCode::TopicNameInvalid | PubackReasonCode::PayloadFormatInvalid => {
            Outcome::Refused(code.to_string())
        }
        other => Outcome::Later(other.to_string()),
    }
}
