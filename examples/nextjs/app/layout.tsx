// The frame of every page.
export default function Layout({ children }: { children: React.ReactNode }) {
  return <html lang="en"><body style={{ font: "16px/1.5 system-ui", maxWidth: "40rem", margin: "auto" }}>{children}</body></html>;
}
