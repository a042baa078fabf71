//! Prepares images for models: the format is found from the bytes, and no image is larger than 2000 × 2000. Files that
//! a user or a tool gives are checked.

use super::excerpt;
use super::fault::Fault;
use crate::message::{Media, MediaSource, Part};
use base64::Engine;
use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// The longest side of an image for a model, in pixels.
const LONGEST_SIDE: u32 = 2_000;
/// The most bytes of one image, before they are encoded in base64.
const MOST_BYTES: usize = 3_500_000;
/// The largest image or document that is taken from a user or a tool, in bytes.
const LARGEST_GIVEN: usize = 32 << 20;

/// An image for a model.
pub(crate) struct Prepared {
    pub mime: &'static str,
    pub base64: String,
    pub width: u32,
    pub height: u32,
    /// The size that it had, if it was made smaller.
    pub original: Option<(u32, u32)>,
}

/// The format of an image, from the first bytes of its file. The name of the file does not count. None if it is not a
/// format that every provider accepts.
pub(crate) fn sniff(bytes: &[u8]) -> Option<ImageFormat> {
    let known = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
    image::guess_format(bytes).ok().filter(|format| known.contains(format))
}

/// Prepares an image. It is made smaller if it is too large.
pub(crate) fn prepare(requested: &str, format: ImageFormat, bytes: Vec<u8>) -> Result<Prepared, Fault> {
    let broken = |error| {
        Fault::for_model(
            "broken_image",
            format!("{requested:?} looks like an image and cannot be read as one: {error}."),
        )
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(30_000);
    limits.max_image_height = Some(30_000);
    let mut reader = ImageReader::with_format(Cursor::new(&bytes), format);
    reader.limits(limits);
    let image = reader.decode().map_err(broken)?;
    let (width, height) = (image.width(), image.height());
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    if width.max(height) <= LONGEST_SIDE && bytes.len() <= MOST_BYTES {
        return Ok(Prepared { mime: format.to_mime_type(), base64: encode(&bytes), width, height, original: None });
    }
    let small = image.thumbnail(LONGEST_SIDE.min(width), LONGEST_SIDE.min(height));
    let mut png = Vec::new();
    small.write_to(&mut Cursor::new(&mut png), ImageFormat::Png).map_err(broken)?;
    let (mime, smaller) = if png.len() <= MOST_BYTES {
        ("image/png", png)
    } else {
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, 80).encode_image(&small.to_rgb8()).map_err(broken)?;
        ("image/jpeg", jpeg)
    };
    let (now_wide, now_high) = (small.width(), small.height());
    Ok(Prepared { mime, base64: encode(&smaller), width: now_wide, height: now_high, original: Some((width, height)) })
}

/// Checks an image or a document that a user or a tool has given. Its media type is found from its bytes, and an image
/// is made smaller if it is too large. The error says in words what is wrong.
pub fn checked(media: Media) -> Result<Media, String> {
    let media = media.with_data_url_read()?;
    let MediaSource::Base64(text) = &media.source else { return Ok(media) };
    let text: String = text.split_ascii_whitespace().collect();
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(&text) else {
        return Err("its data is no base64".to_owned());
    };
    if bytes.len() > LARGEST_GIVEN {
        let (size, most) = (excerpt::size(bytes.len() as u64), excerpt::size(LARGEST_GIVEN as u64));
        return Err(format!("it has {size}, and may have {most}"));
    }
    if let Some(format) = sniff(&bytes) {
        let ready = prepare("the image", format, bytes).map_err(|fault| match fault {
            Fault::ForModel(_, message) => message,
            Fault::Machine(error) => error.message().to_owned(),
        })?;
        let source = MediaSource::Base64(ready.base64);
        return Ok(Media { mime: ready.mime.to_owned(), source, name: media.name });
    }
    let mime = match kind_of(&bytes) {
        Some("application/pdf") => "application/pdf".to_owned(),
        _ if media.mime.starts_with("image/") => {
            let found = kind_of(&bytes).unwrap_or("bytes of an unknown type");
            return Err(format!("it is called {}, and its bytes are {found}; send PNG, JPEG, GIF or WebP", media.mime));
        }
        _ => media.mime,
    };
    Ok(Media { mime, source: MediaSource::Base64(text), name: media.name })
}

/// The part of the conversation for bytes that a tool has returned: an image, a text, or a line about what they are.
pub(crate) fn part_of_bytes(bytes: &[u8]) -> Part {
    if let Some(format) = sniff(bytes) {
        match prepare("the result", format, bytes.to_vec()) {
            Ok(ready) => return Part::media(ready.mime, ready.base64),
            Err(Fault::ForModel(_, message)) => return Part::text(format!("[{message}]")),
            Err(Fault::Machine(error)) => return Part::text(format!("[{}]", error.message())),
        }
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Part::text(text),
        _ => Part::text(about_bytes(bytes, bytes.len() as u64)),
    }
}

/// A line about bytes that no model can be shown. `first` are the first of them.
pub(crate) fn about_bytes(first: &[u8], size: u64) -> String {
    let kind = kind_of(first).unwrap_or("application/octet-stream");
    format!(
        "[{} of binary data ({kind}): not shown. The whole is the output of the task of this call.]",
        excerpt::size(size)
    )
}

/// The media type of a file that is no image for models, from its first bytes.
fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 12] = [
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b", "application/gzip"),
        (b"\x7fELF", "application/x-elf"),
        (b"SQLite format 3\0", "application/vnd.sqlite3"),
        (b"OggS", "audio/ogg"),
        (b"ID3", "audio/mpeg"),
        (b"BM", "image/bmp"),
        (b"II*\0", "image/tiff"),
        (b"MM\0*", "image/tiff"),
        (b"<svg", "image/svg+xml"),
        (b"<?xml", "application/xml"),
    ];
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some(if bytes.get(8..11) == Some(b"hei") { "image/heic" } else { "video/mp4" });
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WAVE") {
        return Some("audio/wav");
    }
    KNOWN.iter().find(|(begin, _)| bytes.starts_with(begin)).map(|(_, kind)| *kind)
}
