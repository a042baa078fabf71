// The page begins: theme, the cache of what was asked, and the router.
import { asProblem } from "@flovyn/react/client";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { applyTheme } from "./frame/theme";
import { makeRouter } from "./router";
import "./styles.css";

applyTheme();

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      // What the server refuses it refuses again; what did not answer may have been restarted.
      retry: (times, error) => (asProblem(error).status === 0 || asProblem(error).status >= 500) && times < 3,
    },
  },
});

const place = document.getElementById("root");
if (place) {
  createRoot(place).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <RouterProvider router={makeRouter(client)} />
      </QueryClientProvider>
    </StrictMode>,
  );
}
