//! The integration tests of `chappe-transport` in one program: linking one takes seconds.

mod common;
mod http_exchange;
mod http_exi;
mod http_limits;
mod kad;
mod kad_node;
mod multicast;
mod tls;
mod tree;
mod zeromq_limits;
mod zeromq_publish;
mod zeromq_sessions;
