//! The form of metadata servers' caps. What they allow is for those to judge, which get them in their clients' tickets.
//!
//! Source: Ceph `src/mds/MDSAuthCaps.cc` at v16.2.15.
//! ```text
//! caps   := "allow" | grant { (";" | ",") grant }
//! grant  := "allow" ( "*" | "all" | "r" ["w"] ["f"] ["p"] ["s"] ) match ["network" range]
//! match  := ["fsname=" name] ["path=" path] ["root_squash"] | ["path=" path] "uid=" number ["gids=" number { "," number }]
//! ```

use super::lexer::Cursor;
use super::{CAPS_BYTES_MAX, CapsError};

const SERVICE: &str = "mds";

/// Refuses text that no metadata server could read.
pub(super) fn check(text: &str) -> Result<(), CapsError> {
    if text.len() > CAPS_BYTES_MAX {
        return Err(CapsError::TooLong { service: SERVICE, bytes: text.len() });
    }
    let mut cursor = Cursor::new(text);
    // The caps of servers themselves, of times before there were others.
    let read = text == "allow" || grants(&mut cursor).is_some() && cursor.rest().is_empty();
    match cursor.rest() {
        _ if read => Ok(()),
        "" => Err(CapsError::Truncated { service: SERVICE, text: text.to_owned() }),
        rest => Err(CapsError::Syntax { service: SERVICE, rest: rest.to_owned(), text: text.to_owned() }),
    }
}

fn grants(c: &mut Cursor<'_>) -> Option<()> {
    c.attempt(grant)?;
    while c
        .attempt(|c| {
            c.skip_spaces();
            c.literal(";").or_else(|| c.literal(","))?;
            c.skip_spaces();
            grant(c)
        })
        .is_some()
    {}
    Some(())
}

fn grant(c: &mut Cursor<'_>) -> Option<()> {
    c.literal("allow")?;
    c.spaces()?;
    c.literal("*").or_else(|| c.literal("all")).or_else(|| letters(c))?;
    let has_fs = value(c, "fsname").is_some();
    value(c, "path");
    let squashes = c.keyword("root_squash").is_some();
    if !has_fs && !squashes && c.attempt(|c| number(c, "uid")).is_some() {
        c.attempt(|c| {
            number(c, "gids")?;
            while c.literal(",").is_some() {
                c.number()?;
            }
            Some(())
        });
    }
    c.network();
    Some(())
}

/// `r`, then any of `wfps` in this order.
fn letters(c: &mut Cursor<'_>) -> Option<()> {
    c.literal("r")?;
    for letter in ["w", "f", "p", "s"] {
        c.literal(letter);
    }
    Some(())
}

fn value<'a>(c: &mut Cursor<'a>, key: &str) -> Option<&'a str> {
    c.attempt(|c| {
        c.keyword(key)?;
        c.literal("=")?;
        c.word()
    })
}

fn number(c: &mut Cursor<'_>, key: &str) -> Option<()> {
    c.keyword(key)?;
    c.literal("=")?;
    c.number()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_servers_read_is_taken_and_nothing_else() {
        let good = [
            "allow",
            "allow *",
            "allow all",
            "allow r",
            "allow rw",
            "allow rwps",
            "allow rwfps path=/a/b-c_d.e",
            "allow r path=\"/with space\"",
            "allow rw fsname=a path=/x root_squash",
            "allow rw fsname=a root_squash",
            "allow rw root_squash",
            "allow rw uid=1000 gids=1000,1001",
            "allow rw path=/x uid=1000",
            "allow r, allow rw path=/bar",
            "allow r; allow rw path=/bar network 10.0.0.0/8",
            "allow rw fsname=a, allow rw fsname=b path=/c",
        ];
        for text in good {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let bad = [
            "",
            "deny",
            "allow ",
            "allow w",
            "allow rpw",
            "allow rx",
            "allow rw path",
            "allow rw path=",
            "allow rw gids=1",
            "allow rw uid=x",
            "allow rw fsname=a uid=1",
            "allow rw path=/a fsname=b",
            "allow r allow w",
            "allow r,",
        ];
        for text in bad {
            assert!(check(text).is_err(), "{text}");
        }
        assert!(check(&format!("allow r path=/{}", "x".repeat(70_000))).is_err());
    }
}
