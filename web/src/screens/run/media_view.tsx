// Files in messages: pictures that came with them are shown, all others are named.
import { safeAddress } from "@flovyn/react/transcript";
import type { MediaPart } from "@flovyn/react/transcript";
import { FileText } from "lucide-react";

/** Pictures that cannot run anything; SVG, which can, is none of them. */
const SHOWN: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

export function MediaView({ media }: { media: MediaPart }) {
  if (media.base64 && SHOWN.has(media.mime)) {
    return <img src={`data:${media.mime};base64,${media.base64}`} alt={media.name ?? "picture"} className="max-h-96 max-w-full rounded-md border border-line" />;
  }
  const address = safeAddress(media.url ?? undefined);
  return (
    <div className="flex items-center gap-2 rounded-md border border-line bg-raised px-3 py-2 text-sm">
      <FileText size={15} aria-hidden className="text-faint" />
      <span className="min-w-0 truncate">{media.name ?? media.mime}</span>
      {address && (
        <a href={address} rel="noopener noreferrer nofollow" target="_blank" className="text-accent underline">
          open
        </a>
      )}
    </div>
  );
}
