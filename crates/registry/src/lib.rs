//! Semantic registry: entities and triples in ordered indexes, SPARQL, journal, change feed.
