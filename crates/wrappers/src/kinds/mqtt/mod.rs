//! MQTT 3.1.1 and 5.0: messages of a broker as elements, elements as messages.

pub(in crate::kinds) mod broker;
mod browse;
mod commands;
pub(in crate::kinds) mod follow;
mod frames;
mod home_assistant;
mod ledger;
mod packets;
mod publish;
pub(in crate::kinds) mod session;
mod subscribe;
#[cfg(test)]
mod tests;

pub(crate) use home_assistant::WRAPPER as HOME_ASSISTANT;
pub use home_assistant::read as read_home_assistant;
pub(crate) use publish::EXPORTER;
pub(in crate::kinds) use publish::level;
pub(crate) use subscribe::WRAPPER;

/// Characters of a node's identity in a client identifier; reason: brokers of MQTT 3.1.1 need to take only 23.
const IDENTITY_CHARACTERS: usize = 8;

/// The client identifier of a file that names none.
pub(in crate::kinds) fn client_id(node: &str, name: &str) -> String {
    let identity: String = node
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(IDENTITY_CHARACTERS)
        .collect();
    match identity.is_empty() {
        true => format!("chappe-{name}"),
        false => format!("chappe-{identity}-{name}"),
    }
}
