//! Prepares images for models: the format is found from the bytes, and no image is larger than 2000 × 2000.

use super::fault::Fault;
use base64::Engine;
use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// The longest side of an image for a model, in pixels.
const LONGEST_SIDE: u32 = 2_000;
/// The most bytes of one image, before they are encoded in base64.
const MOST_BYTES: usize = 3_500_000;

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
