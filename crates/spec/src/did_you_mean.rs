//! "Did you mean": the known word that is most similar to a misspelt one.

/// Longer words are not compared: the comparison is quadratic.
const WORD_CHARACTERS_MAX: usize = 64;

/// Shorter words are not compared as prefixes.
const START_LETTERS_MIN: usize = 3;

/// Finds the word of `known` that `word` most likely means.
///
/// Words that differ only in style (`timeoutMs` and `timeout_ms`) are nearest. Otherwise one must
/// be a prefix of the other, or at most a third of the letters are added, removed, replaced or
/// swapped.
pub fn nearest<'known>(
    word: &str,
    known: impl IntoIterator<Item = &'known str>,
) -> Option<&'known str> {
    known
        .into_iter()
        .filter(|candidate| *candidate != word)
        .filter_map(|candidate| Some((difference(word, candidate)?, candidate)))
        .min_by_key(|(difference, _)| *difference)
        .map(|(_, candidate)| candidate)
}

/// The distance between two words; `None`: too different.
#[must_use]
pub fn difference(word: &str, other: &str) -> Option<usize> {
    let too_long = |word: &str| WORD_CHARACTERS_MAX < word.chars().count();
    if too_long(word) || too_long(other) {
        return None;
    }
    let (plain, other) = (unstyled(word), unstyled(other));
    let (shorter, longer) = if plain.len() < other.len() {
        (&plain, &other)
    } else {
        (&other, &plain)
    };
    let distance = distance(&plain, &other);
    if distance <= longer.len() / 3 {
        return Some(distance);
    }
    (START_LETTERS_MIN <= shorter.len() && longer.starts_with(shorter)).then_some(distance)
}

fn unstyled(word: &str) -> Vec<char> {
    word.chars()
        .filter(|character| !matches!(character, '_' | '-' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Number of letters to add, remove, replace or swap with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut two_above: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (row, letter) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replaced = above[column] + usize::from(letter != other);
            let mut best = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            let swapped =
                0 < row && 0 < column && *letter == to[column - 1] && from[row - 1] == *other;
            if swapped {
                best = best.min(two_above[column - 1] + 1);
            }
            current.push(best);
        }
        two_above = above;
        above = current;
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_the_one_that_was_meant() {
        let known = ["timeout_ms", "memory_mb", "cpu_ms", "run"];
        for (word, meant) in [
            ("timeuot_ms", Some("timeout_ms")),
            ("timeoutMs", Some("timeout_ms")),
            ("memory-mb", Some("memory_mb")),
            ("rnu", Some("run")),
            ("cpu", Some("cpu_ms")),
            ("memory", Some("memory_mb")),
            ("colour", None),
            ("ru", Some("run")),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }

    #[test]
    fn a_huge_word_is_not_compared() {
        assert_eq!(nearest(&"a".repeat(1 << 20), ["run"]), None);
    }
}
