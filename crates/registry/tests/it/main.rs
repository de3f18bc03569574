//! The integration tests of `chappe-registry` in one program: linking one takes seconds.

mod access;
mod exchange;
mod explore;
mod full_disk;
mod hostile;
mod iris;
mod join_order;
mod journal;
mod kinds;
mod leases;
mod many_rules;
mod metadata;
mod metadata_of_messages;
mod model;
mod one_sync;
mod paths;
mod power_loss;
mod room;
mod search;
mod shared_journal;
mod uddi;
mod watch;
mod wsdl;
