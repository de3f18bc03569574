//! Times by the million in a bounded table: percentiles to one in 64.

/// Cells per doubling: a value is precise to 1/64 of itself.
const CELLS_BITS: u32 = 6;
const CELLS: usize = 1 << CELLS_BITS;
/// Every value of 64 bits has its cell: 30 KiB in all.
const CELLS_IN_ALL: usize = (64 - CELLS_BITS as usize + 1) * CELLS;

/// Counts of values, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    cells: Vec<u64>,
    count: u64,
    sum: u128,
    least: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            cells: vec![0; CELLS_IN_ALL],
            count: 0,
            sum: 0,
            least: u64::MAX,
            most: 0,
        }
    }
}

/// Below 64 each value has a cell; above, 64 cells share each doubling.
fn cell(value: u64) -> usize {
    let bits = 64 - value.leading_zeros();
    let shift = bits.saturating_sub(CELLS_BITS + 1);
    // At most 58 doublings of 64 cells and the first 128.
    shift as usize * CELLS + (value >> shift) as usize
}

/// The largest value of a cell.
fn top(cell: usize) -> u64 {
    let shift = (cell / CELLS).saturating_sub(1);
    let base = (cell - shift * CELLS) as u64;
    ((u128::from(base + 1) << shift) - 1)
        .try_into()
        .unwrap_or(u64::MAX)
}

impl Histogram {
    pub(crate) fn add(&mut self, value: u64) {
        self.cells[cell(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.least = self.least.min(value);
        self.most = self.most.max(value);
    }

    /// The smallest value that `percent` of all do not exceed, by the nearest rank; 0 if there are
    /// none.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.cells.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return top(index).clamp(self.least, self.most);
            }
        }
        self.most
    }

    /// The columns of a table for it, in microseconds; `None` if it is empty.
    pub(crate) fn summary(&self) -> Option<crate::Times> {
        let us = |value: u64| value as f64 / 1e3;
        (self.count > 0).then(|| crate::Times {
            count: self.count,
            min_us: us(self.least),
            mean_us: self.sum as f64 / self.count as f64 / 1e3,
            p50_us: us(self.percentile(50.0)),
            p90_us: us(self.percentile(90.0)),
            p99_us: us(self.percentile(99.0)),
            p999_us: us(self.percentile(99.9)),
            max_us: us(self.most),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_cell_and_is_told_to_one_in_64() {
        let mut last = None;
        let large = (0..58).flat_map(|shift| [64_u64, 65, 127].map(|base| base << shift));
        for value in (0..64).chain(large) {
            let index = cell(value);
            assert!(index < CELLS_IN_ALL && last < Some(index), "{value}");
            assert!(top(index) >= value, "{value}");
            assert!(top(index) - value <= value / 64, "{value}: {}", top(index));
            last = Some(index);
        }
        assert!(cell(u64::MAX) < CELLS_IN_ALL);
        assert_eq!(top(cell(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut one = Histogram::default();
        assert_eq!((one.percentile(50.0), one.summary()), (0, None));
        (1..=100).rev().for_each(|value| one.add(value));
        assert_eq!(one.percentile(50.0), 50);
        assert_eq!(one.percentile(100.0), 100);
        assert_eq!(one.percentile(0.0), 1);
        assert_eq!(
            one.summary().map(|it| (it.count, it.mean_us)),
            Some((100, 0.0505))
        );
    }
}
