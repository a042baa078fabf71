// A value that is told by reference: read when asked for, as JSON where it is JSON.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { payloadQuery } from "../../api/queries";
import { Button } from "../../parts/button";
import { formatBytes } from "../../parts/format";
import { Failed, Loading } from "../../parts/states";
import { Value } from "./result_view";

export function ReferencedValue({ href, size }: { href: string | null; size: number }) {
  const [isAsked, setAsked] = useState(size <= 64_000);
  const found = useQuery({ ...payloadQuery(href ?? ""), enabled: isAsked && href !== null });
  if (href === null) return <p className="text-sm text-faint">{formatBytes(size)} that are no JSON.</p>;
  if (!isAsked) {
    return (
      <Button small onClick={() => setAsked(true)}>
        Read {formatBytes(size)}
      </Button>
    );
  }
  if (found.isLoadingError) return <Failed error={found.error} onRetry={() => void found.refetch()} />;
  return found.data === undefined ? <Loading what="Reading" /> : <Value text={found.data} />;
}
