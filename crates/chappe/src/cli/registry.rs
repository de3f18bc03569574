//! The command line of `chappe registry`.

use std::path::PathBuf;
use std::time::Duration;

use chappe_terminal::duration;
use clap::{ArgGroup, Args, Subcommand};

use super::{Format, NodeAddress};

/// Verbs of `registry`.
#[derive(Debug, Subcommand)]
pub(crate) enum RegistryVerb {
    /// Find entities by name, kind, type, scope, owner, or what they describe.
    #[command(
        after_help = "Examples:\n  chappe registry find\n  chappe registry find pulse --kind stream\n  chappe registry find --type '{http://example.com/plant}Pump' --json\n  chappe registry find --type '{http://example.com/plant}Pump' --inferred   subclasses too\n\nAll criteria must match. Exit code 1 when nothing is found."
    )]
    Find(RegistryFind),
    /// Show an entity with all its properties.
    #[command(
        after_help = "Examples:\n  chappe registry show urn:chappe:stream:heart-rate\n  chappe registry show urn:uuid:6f1a1c1e-3d67-4f3e-9a44-0a6a2b0b5a10 --json"
    )]
    Show(RegistryShow),
    /// Show or change who may read, annotate, change and administer an entity.
    #[command(
        after_help = "Examples:\n  chappe registry rights http://example.com/pump-7\n  chappe registry rights http://example.com/pump-7 --grant write=group:ward-3 --revoke read=everybody\n  chappe registry rights urn:chappe:stream:heart-rate --revoke read=everybody --grant read=account:ada\n\nA right is read, annotate, write or administer, and includes those before it. It is given to\neverybody, accounts, account:NAME, group:NAME or role:ROLE. Changes need the role write, and the\nright administer."
    )]
    Rights(RegistryRights),
    /// Show the recorded changes of an entity, newest first.
    #[command(
        after_help = "Examples:\n  chappe registry history http://example.com/pump-7\n  chappe registry history urn:chappe:stream:heart-rate --limit 5 --json\n\nChanges are shown as you could see them when they were made. The last line shows where the history\nbegins."
    )]
    History(RegistryHistory),
    /// Publish an entity, or replace one of your own.
    #[command(
        after_help = "Examples:\n  chappe registry publish http://example.com/pump-7 'Pump 7' --kind device --scope http://example.com/ward/3\n  chappe registry publish http://example.com/pump-7 'Pump 7' --turtle pump.ttl --lease 10m\n  chappe registry publish urn:x:rooms Rooms --turtle - < rooms.ttl\n\nRelative IRIs of the Turtle document are resolved against the key, so <> is the entity. Needs the\nrole write."
    )]
    Publish(RegistryPublish),
    /// Renew the leases of entities or pieces of metadata: each starts again with its full length.
    #[command(after_help = "Example:\n  chappe registry renew http://example.com/pump-7")]
    Renew(RegistryRenew),
    /// Remove an entity that you published.
    #[command(after_help = "Example:\n  chappe registry remove http://example.com/pump-7")]
    Remove(RegistryRemove),
    /// Query the registry in SPARQL, as `chappe query --sparql`.
    #[command(
        after_help = "Examples:\n  chappe registry query 'SELECT ?s ?name WHERE { ?s <http://www.w3.org/2000/01/rdf-schema#label> ?name } LIMIT 10'\n  chappe registry query - --format csv < question.rq\n\nExit code 1 when an ASK query returns false."
    )]
    Query(RegistryQuery),
    /// Follow changes of an entity, of a search, or of the result of a SPARQL query.
    #[command(
        after_help = "Examples:\n  chappe registry subscribe                                     all changes\n  chappe registry subscribe --kind device --present             the current state, then changes\n  chappe registry subscribe --key http://example.com/pump-7 --json\n  chappe registry subscribe --query 'SELECT ?s WHERE { ?s <http://example.com/flow> ?f }'\n  chappe registry subscribe --kind device --mail ops@example.org --lease 30d\n  chappe registry subscribe --kind device --eventing --json   the node posts its events here\n\nReconnects without missing changes: after `resync`, the whole current state follows.\nWith --json, a line has an id, unless it is part of the current state; --after resumes there.\nWith --mail, changes are sent until the lease ends, and the command prints the id.\nWith --eventing, they come by WS-Eventing to a port of this host, which the node must reach."
    )]
    Subscribe(RegistrySubscribe),
    /// End a subscription by e-mail.
    #[command(after_help = "Example:\n  chappe registry unsubscribe 6f1a1c1e3d674f3e")]
    Unsubscribe(RegistryUnsubscribe),
    /// Attach a piece of metadata to any entity, or update one of your own.
    #[command(
        after_help = "Examples:\n  chappe registry annotate http://example.com/pump-7 http://example.com/calibrated 2026-11-20\n  chappe registry annotate http://example.com/pump-7 http://example.com/manual --uri http://example.com/pump.pdf\n  chappe registry annotate http://example.com/pump-7 http://example.com/test --turtle test.ttl\n  chappe registry annotate http://example.com/pump-7 http://example.com/calibrated 2026-11-26 --piece urn:uuid:...\n\nThe piece belongs to you and names you as its author. The entity itself is not changed. Needs the\nrole write."
    )]
    Annotate(RegistryAnnotate),
    /// List pieces of metadata with their authors.
    #[command(
        after_help = "Examples:\n  chappe registry annotations http://example.com/pump-7\n  chappe registry annotations --type http://example.com/calibrated --author ada --json\n\nExit code 1 when there is none."
    )]
    Annotations(RegistryAnnotations),
    /// Delete a piece of metadata.
    #[command(
        after_help = "Example:\n  chappe registry withdraw urn:uuid:6f1a1c1e-3d67-4f3e-9a44-0a6a2b0b5a10"
    )]
    Withdraw(RegistryRemove),
    /// Write all entities that you may see to a file, as N-Quads, TriG or UDDI XML.
    #[command(
        after_help = "Examples:\n  chappe registry export > registry.nq\n  chappe registry export --format trig --to registry.trig\n  chappe registry export --format uddi --to businesses.xml"
    )]
    Export(RegistryExport),
    /// Read a file of `chappe registry export`, or of another UDDI registry, into a node.
    #[command(
        after_help = "Examples:\n  chappe registry import registry.nq\n  chappe registry import businesses.xml --format uddi\n\nImports the whole file or nothing: an error names the line. Entities of nodes are skipped, because\nnodes publish them. Needs the role administer."
    )]
    Import(RegistryImport),
}

/// Flags of `registry find`.
#[derive(Debug, Args)]
pub(crate) struct RegistryFind {
    /// Prefix of the name, case-insensitive.
    pub name: Option<String>,
    /// Only this kind, such as device, service, stream or virtual-sensor.
    #[arg(long)]
    pub kind: Option<String>,
    /// Only of this type.
    #[arg(long = "type", value_name = "{NAMESPACE}LOCAL")]
    pub entity_type: Option<String>,
    /// Only within this scope.
    #[arg(long, value_name = "URI")]
    pub scope: Option<String>,
    /// Only of this owner.
    #[arg(long, value_name = "ACCOUNT")]
    pub owner: Option<String>,
    /// Only those whose properties describe the entity with this key.
    #[arg(long, value_name = "KEY")]
    pub about: Option<String>,
    /// Follow subclasses of the type in the ontologies of the node and of your account.
    #[arg(long, requires = "entity_type")]
    pub inferred: bool,
    /// At most this many.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: usize,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry show`.
#[derive(Debug, Args)]
pub(crate) struct RegistryShow {
    /// The entity's key.
    pub key: String,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry rights`.
#[derive(Debug, Args)]
pub(crate) struct RegistryRights {
    /// The entity's key.
    pub key: String,
    /// Give a right, such as write=group:ward-3; may be repeated.
    #[arg(long = "grant", value_name = "RIGHT=WHO")]
    pub grants: Vec<String>,
    /// Revoke a right, such as read=everybody; may be repeated.
    #[arg(long = "revoke", value_name = "RIGHT=WHO")]
    pub revocations: Vec<String>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry history`.
#[derive(Debug, Args)]
pub(crate) struct RegistryHistory {
    /// The entity's key.
    pub key: String,
    /// At most this many changes.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry publish`.
#[derive(Debug, Args)]
pub(crate) struct RegistryPublish {
    /// Its key, an absolute IRI.
    pub key: String,
    /// Its name, for people.
    pub name: String,
    /// device, service or other.
    #[arg(long, default_value = "other")]
    pub kind: String,
    /// A type; may be repeated.
    #[arg(long = "type", value_name = "{NAMESPACE}LOCAL")]
    pub types: Vec<String>,
    /// A scope; may be repeated.
    #[arg(long = "scope", value_name = "URI")]
    pub scopes: Vec<String>,
    /// Its properties in a Turtle document; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub turtle: Option<String>,
    /// Remove it after this time, unless its lease is renewed. Default: it stays.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub lease: Option<Duration>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry renew`.
#[derive(Debug, Args)]
pub(crate) struct RegistryRenew {
    /// The keys of entities or pieces.
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<String>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry unsubscribe`.
#[derive(Debug, Args)]
pub(crate) struct RegistryUnsubscribe {
    /// The id that `registry subscribe --mail` printed.
    pub id: String,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry remove`.
#[derive(Debug, Args)]
pub(crate) struct RegistryRemove {
    /// The key of the entity, or of the piece of metadata.
    pub key: String,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry query`.
#[derive(Debug, Args)]
pub(crate) struct RegistryQuery {
    /// The query; `-` for standard input.
    pub query: String,
    /// Print at most this many rows.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub limit: usize,
    /// How to print the rows.
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,
    /// Follow subclasses and subproperties of the ontologies of the node and of your account.
    #[arg(long)]
    pub inferred: bool,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry subscribe`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("pushed").args(["mail", "eventing"]))]
pub(crate) struct RegistrySubscribe {
    /// Prefix of the name, case-insensitive.
    pub name: Option<String>,
    /// The entity with this key, which need not exist yet.
    #[arg(long, conflicts_with_all = ["name", "kind", "entity_type", "scope", "owner", "query"])]
    pub key: Option<String>,
    /// Changes of the rows of this SELECT query, or of the result of this ASK query.
    #[arg(long, value_name = "SPARQL", conflicts_with_all = ["name", "kind", "entity_type", "scope", "owner"])]
    pub query: Option<String>,
    /// Only this kind, such as device, service, stream or virtual-sensor.
    #[arg(long)]
    pub kind: Option<String>,
    /// Only of this type.
    #[arg(long = "type", value_name = "{NAMESPACE}LOCAL")]
    pub entity_type: Option<String>,
    /// Only within this scope.
    #[arg(long, value_name = "URI")]
    pub scope: Option<String>,
    /// Only of this owner.
    #[arg(long, value_name = "ACCOUNT")]
    pub owner: Option<String>,
    /// Follow subclasses and subproperties of the ontologies of the node and of your account.
    #[arg(long, conflicts_with = "key")]
    pub inferred: bool,
    /// Print the current state first.
    #[arg(long)]
    pub present: bool,
    /// Resume after the event with this id.
    #[arg(long, value_name = "ID", conflicts_with = "present")]
    pub after: Option<String>,
    /// End after this many changes.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Have the node send changes to this address instead.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["present", "after", "count", "inferred"])]
    pub mail: Option<String>,
    /// Have the node post changes to this host by WS-Eventing.
    ///
    /// An interrupt ends the subscription.
    #[arg(long, conflicts_with_all = ["present", "after", "mail", "inferred"])]
    pub eventing: bool,
    /// The length of the lease. Default: a week with --mail, 10m with --eventing.
    ///
    /// A subscription by e-mail ends with its lease. One by WS-Eventing is renewed until the command ends; if the
    /// command is killed, it ends with its lease.
    #[arg(long, value_parser = duration, value_name = "DURATION", requires = "pushed")]
    pub lease: Option<Duration>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry annotate`.
#[derive(Debug, Args)]
pub(crate) struct RegistryAnnotate {
    /// The key of the entity that it describes.
    pub subject: String,
    /// The type of its statement, an IRI.
    #[arg(value_name = "TYPE")]
    pub piece_type: String,
    /// The value, a text.
    #[arg(required_unless_present_any = ["uri", "turtle"])]
    pub value: Option<String>,
    /// The datatype of the value, an IRI. Default: plain text.
    #[arg(long, value_name = "IRI", requires = "value")]
    pub datatype: Option<String>,
    /// The value, a URI.
    #[arg(long, conflicts_with = "value")]
    pub uri: Option<String>,
    /// The value, an RDF graph in a Turtle document; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["value", "uri"])]
    pub turtle: Option<String>,
    /// Update this piece instead.
    #[arg(long, value_name = "KEY")]
    pub piece: Option<String>,
    /// Who may read it: everybody, accounts, account:NAME, group:NAME or role:ROLE; may be repeated.
    ///
    /// Default: those who may read the entity.
    #[arg(long = "reader", value_name = "WHO")]
    pub readers: Vec<String>,
    /// Delete it after this time, unless its lease is renewed. Default: it stays.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub lease: Option<Duration>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry annotations`.
#[derive(Debug, Args)]
pub(crate) struct RegistryAnnotations {
    /// The key of the entity that they are about.
    #[arg(required_unless_present_any = ["piece_type", "author"])]
    pub subject: Option<String>,
    /// Only those that state this, an IRI.
    #[arg(long = "type", value_name = "TYPE")]
    pub piece_type: Option<String>,
    /// Only those of this account.
    #[arg(long, value_name = "ACCOUNT")]
    pub author: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: usize,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry export`.
#[derive(Debug, Args)]
pub(crate) struct RegistryExport {
    /// nquads, trig or uddi.
    #[arg(long, default_value = "nquads")]
    pub format: String,
    /// The file. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `registry import`.
#[derive(Debug, Args)]
pub(crate) struct RegistryImport {
    /// The file; `-` for standard input.
    pub file: String,
    /// nquads, trig or uddi. Default: by the extension of the file (.nq, .trig, .xml).
    #[arg(long)]
    pub format: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeAddress,
}
