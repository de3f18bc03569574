//! MQTT 3.1.1 and 5.0: messages of a broker as elements, elements as messages.

mod broker;
mod commands;
mod frames;
mod ledger;
mod publish;
mod session;
mod subscribe;
#[cfg(test)]
mod tests;

pub(crate) use publish::EXPORTER;
pub(crate) use subscribe::WRAPPER;

/// Characters of a node's identity in a client identifier; reason: brokers of MQTT 3.1.1 need to take only 23.
const IDENTITY_CHARACTERS: usize = 8;

/// The client identifier of a file that names none.
fn client_id(node: &str, name: &str) -> String {
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
