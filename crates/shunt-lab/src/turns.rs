//! Routers measured in turn, so that changes of the machine over time affect all of them.

use crate::ResultsFile;
use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

/// Calls `measure` for each router in turn, `runs` times, with the number of the run from 1, and saves the file after
/// each call. When `stop` is set, returns what was measured until then.
///
/// # Errors
/// Fails as `measure` does, unless `stop` is set and something was measured before, or if the file cannot be written.
pub(crate) fn in_turn<R, T, E: From<io::Error>>(
    (runs, routers): (u32, &mut [R]),
    (file, stop): (&mut ResultsFile, &AtomicBool),
    mut measure: impl FnMut(u32, &mut R, &mut ResultsFile) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let mut all = Vec::new();
    for run in 1..=runs {
        for router in &mut *routers {
            let is_over = |all: &[T]| stop.load(Ordering::Relaxed) && !all.is_empty();
            if is_over(&all) {
                return Ok(all);
            }
            match measure(run, router, file) {
                Err(_) if is_over(&all) => return Ok(all),
                measured => all.push(measured?),
            }
            file.save()?;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conditions, Results};

    /// The runs and routers until `stop` is set or an error occurs at this place.
    fn turns(stop_at: (u32, char), fail_at: (u32, char)) -> io::Result<Vec<(u32, char)>> {
        let (mut file, stop) =
            (ResultsFile::in_memory(Results::new("turns", Conditions::default())), AtomicBool::new(false));
        in_turn((2, &mut ['a', 'b']), (&mut file, &stop), |run, router, _| {
            stop.fetch_or((run, *router) == stop_at, Ordering::Relaxed);
            if (run, *router) == fail_at { Err(io::Error::other("failed")) } else { Ok((run, *router)) }
        })
    }

    #[test]
    fn routers_take_turns_until_they_are_stopped() {
        let never = (9, 'z');
        let all = [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')];
        assert_eq!(turns(never, never).unwrap(), all);
        assert_eq!(turns((2, 'a'), never).unwrap(), all[..3]);
        // What a stopped measurement fails with is not an error, unless nothing was measured before.
        assert_eq!(turns((1, 'b'), (1, 'b')).unwrap(), all[..1]);
        assert!(turns((1, 'a'), (1, 'a')).is_err() && turns(never, (1, 'b')).is_err());
    }
}
