//! "Did you mean": the known word nearest to an unknown one.

/// The candidate with the fewest edits from `found`, where few enough were needed that a slip of
/// the fingers explains them: a third of the word's length, at least one, and never all of it.
#[must_use]
pub fn nearest<'word>(
    found: &str,
    candidates: impl IntoIterator<Item = &'word str>,
) -> Option<&'word str> {
    let length = found.chars().count();
    let edits_max = (length / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (edits(found, candidate), candidate))
        .filter(|(count, _)| *count <= edits_max && *count < length)
        .min_by_key(|(count, _)| *count)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words, letter case
/// left aside.
fn edits(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.to_lowercase().chars().collect();
    let to: Vec<char> = to.to_lowercase().chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (row, here) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, there) in to.iter().enumerate() {
            let replaced = rows[row][column] + usize::from(here != there);
            let mut fewest = replaced
                .min(rows[row][column + 1] + 1)
                .min(next[column] + 1);
            let swapped =
                0 < row && 0 < column && from[row - 1] == *there && *here == to[column - 1];
            if swapped {
                fewest = fewest.min(rows[row - 1][column - 1] + 1);
            }
            next.push(fewest);
        }
        rows.push(next);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let words = ["memory", "timeout", "processes", "grants"];
        assert_eq!(nearest("memroy", words), Some("memory"));
        assert_eq!(nearest("Timeouts", words), Some("timeout"));
        assert_eq!(nearest("proceses", words), Some("processes"));
        assert_eq!(nearest("network", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
