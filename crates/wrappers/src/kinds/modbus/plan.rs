//! Which requests read all registers of a device, as few as the limits of the protocol allow (Modbus Application Protocol
//! 1.1b3, sections 6.1 to 6.4).

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// Most registers of one request (sections 6.3 and 6.4).
pub(super) const REGISTERS_MAX: u16 = 125;
/// Most coils or discrete inputs of one request (sections 6.1 and 6.2).
pub(super) const BITS_MAX: u16 = 2_000;

/// One of the four tables of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Table {
    /// Registers that can be written.
    Holding,
    /// Registers that are read-only.
    Input,
    /// Bits that can be written.
    Coils,
    /// Bits that are read-only.
    Discrete,
}

impl Table {
    /// Whether its entries are single bits.
    pub(super) fn has_bits(self) -> bool {
        matches!(self, Self::Coils | Self::Discrete)
    }

    /// Its name in files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Holding => "holding",
            Self::Input => "input",
            Self::Coils => "coils",
            Self::Discrete => "discrete",
        }
    }
}

/// Successive entries of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) table: Table,
    pub(super) address: u16,
    /// At least 1.
    pub(super) count: u16,
}

impl Span {
    /// The address after its last entry.
    pub(super) fn end(self) -> u32 {
        u32::from(self.address) + u32::from(self.count)
    }

    /// Whether it has all entries of another one.
    pub(super) fn covers(self, other: Self) -> bool {
        self.table == other.table && self.address <= other.address && other.end() <= self.end()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, address) = (self.table.name(), self.address);
        match self.count {
            1 => write!(f, "{name} {address}"),
            _ => write!(f, "{name} {address} to {}", self.end() - 1),
        }
    }
}

/// How requests are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    /// Most entries that nobody needs between two that are read together.
    pub(super) gap: u16,
    /// Most registers of one request.
    pub(super) registers_max: u16,
}

impl Merge {
    fn most(self, table: Table) -> u16 {
        match table.has_bits() {
            true => BITS_MAX,
            false => self.registers_max,
        }
    }
}

/// The requests that read these spans. Each span is covered by exactly one request, unless it alone is longer than one may be.
pub(super) fn plan(spans: &[Span], merge: Merge) -> Vec<Span> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let mut reads: Vec<Span> = Vec::new();
    for span in sorted {
        if let Some(last) = reads.last_mut()
            && let Some(both) = merged(*last, span, merge)
        {
            *last = both;
            continue;
        }
        reads.push(span);
    }
    reads
}

/// One request for both, if they are near enough and not too many. `second` does not begin before `first`.
fn merged(first: Span, second: Span, merge: Merge) -> Option<Span> {
    if first.table != second.table || u32::from(second.address) > first.end() + u32::from(merge.gap)
    {
        return None;
    }
    let end = first.end().max(second.end());
    let count = u16::try_from(end - u32::from(first.address)).ok()?;
    (count <= merge.most(first.table)).then_some(Span { count, ..first })
}

/// Smaller requests for the spans of one that the device refuses: without gaps first, then each span alone. `None`: it
/// cannot be divided.
pub(super) fn divided(read: Span, spans: &[Span], merge: Merge) -> Option<Vec<Span>> {
    let of_read: Vec<Span> = spans
        .iter()
        .copied()
        .filter(|it| read.covers(*it))
        .collect();
    let dense = plan(&of_read, Merge { gap: 0, ..merge });
    if dense != [read] {
        return Some(dense);
    }
    let mut alone = of_read;
    alone.sort_unstable();
    alone.dedup();
    // A register that is the whole request would be asked for again and again.
    (!alone.contains(&read)).then_some(alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(table: Table, address: u16, count: u16) -> Span {
        Span {
            table,
            address,
            count,
        }
    }

    const MERGE: Merge = Merge {
        gap: 0,
        registers_max: REGISTERS_MAX,
    };

    #[test]
    fn neighbours_are_read_together() {
        use Table::{Coils, Holding, Input};
        let spans = [
            span(Input, 4, 2),
            span(Holding, 0, 2),
            span(Holding, 2, 1),
            span(Holding, 5, 4),
            span(Coils, 7, 1),
        ];
        let reads = [
            span(Holding, 0, 3),
            span(Holding, 5, 4),
            span(Input, 4, 2),
            span(Coils, 7, 1),
        ];
        assert_eq!(plan(&spans, MERGE), reads);
        let with_gap = plan(&spans, Merge { gap: 2, ..MERGE });
        assert_eq!(with_gap[0], span(Holding, 0, 9));
    }

    #[test]
    fn a_refused_request_is_divided_at_its_gaps_and_then_into_registers() {
        let merge = Merge { gap: 8, ..MERGE };
        let spans = [
            span(Table::Holding, 0, 2),
            span(Table::Holding, 2, 1),
            span(Table::Holding, 9, 1),
        ];
        let reads = plan(&spans, merge);
        assert_eq!(reads, [span(Table::Holding, 0, 10)]);
        let dense = divided(reads[0], &spans, merge).unwrap();
        assert_eq!(dense, [span(Table::Holding, 0, 3), spans[2]]);
        assert_eq!(divided(dense[0], &spans, merge).unwrap(), spans[..2]);
        assert_eq!(divided(spans[2], &spans, merge), None);
    }

    fn any_span() -> impl Strategy<Value = Span> {
        let table = prop_oneof![
            Just(Table::Holding),
            Just(Table::Input),
            Just(Table::Coils),
            Just(Table::Discrete)
        ];
        let address = prop_oneof![0..300_u16, 65_000..=u16::MAX];
        (table, address, 1..5_u16).prop_map(|(table, address, count)| Span {
            table,
            address,
            count: count.min(u16::MAX - address).max(1),
        })
    }

    proptest! {
        #[test]
        fn each_register_is_read_once_within_the_limits(
            spans in prop::collection::vec(any_span(), 0..60),
            gap in 0..40_u16,
            registers_max in 4..=REGISTERS_MAX,
        ) {
            let merge = Merge { gap, registers_max };
            let reads = plan(&spans, merge);
            for span in &spans {
                let count = reads.iter().filter(|read| read.covers(*span)).count();
                prop_assert_eq!(count, 1, "{} in {:?}", span, &reads);
            }
            for (at, read) in reads.iter().enumerate() {
                prop_assert!(read.count <= merge.most(read.table) && read.end() <= 65_536);
                let starts = |it: &&Span| it.table == read.table && it.address == read.address;
                let ends = |it: &&Span| it.table == read.table && it.end() == read.end();
                prop_assert!(spans.iter().any(|it| starts(&it)) && spans.iter().any(|it| ends(&it)));
                // No longer run of entries that nobody needs than the gap.
                let mut unused = 0;
                for address in u32::from(read.address)..read.end() {
                    let needed = spans.iter().any(|it| {
                        it.table == read.table && (u32::from(it.address)..it.end()).contains(&address)
                    });
                    unused = if needed { 0 } else { unused + 1 };
                    prop_assert!(unused <= gap);
                }
                // The next request's first span does not fit this one.
                if let Some(next) = reads.get(at + 1) {
                    let first = spans.iter().filter(|it| next.covers(**it)).min().unwrap();
                    prop_assert_eq!(merged(*read, *first, merge), None);
                }
            }
        }

        #[test]
        fn dividing_keeps_every_register_and_ends(
            spans in prop::collection::vec(any_span(), 1..30),
            gap in 0..40_u16,
        ) {
            let merge = Merge { gap, ..MERGE };
            let mut waiting = plan(&spans, merge);
            let mut steps = 0;
            while let Some(read) = waiting.pop() {
                steps += 1;
                prop_assert!(steps < 200);
                if let Some(parts) = divided(read, &spans, merge) {
                    let of_read = spans.iter().filter(|it| read.covers(**it));
                    for span in of_read {
                        prop_assert!(parts.iter().any(|it| it.covers(*span)));
                    }
                    prop_assert!(parts.iter().all(|it| read.covers(*it)));
                    waiting.extend(parts);
                }
            }
        }
    }
}
