// The addresses of the console: each screen with what its address says, loaded when it is first gone to.
import { asProblem } from "@flovyn/react/client";
import type { QueryClient } from "@tanstack/react-query";
import { createRootRouteWithContext, createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { sessionQuery } from "./api/queries";
import { Frame } from "./frame/frame";
import { Empty, Failed, Loading } from "./parts/states";
import { SignIn } from "./screens/sign_in";
import { readApprovalsSearch, readRunSearch, readRunsSearch, readText } from "./search";

interface Context {
  readonly client: QueryClient;
}

const root = createRootRouteWithContext<Context>()({
  notFoundComponent: () => <Empty title="There is no such page">Go on with the places at the side, or press Ctrl-K.</Empty>,
});

const signInRoute = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  component: SignIn,
  validateSearch: (search: Record<string, unknown>): { next?: string } => readText(search, "next"),
});

const frameRoute = createRoute({
  getParentRoute: () => root,
  id: "frame",
  component: Frame,
  beforeLoad: async ({ context, location }) => {
    try {
      await context.client.ensureQueryData(sessionQuery);
    } catch (error) {
      if (asProblem(error).isSignedOut) throw redirect({ to: "/sign-in", search: { next: location.href } });
      throw error;
    }
  },
  pendingComponent: () => <Loading />,
  errorComponent: ({ error, reset }) => <Failed error={error} onRetry={reset} />,
});

const under = () => frameRoute;

const routes = [
  createRoute({
    getParentRoute: under,
    path: "/",
    beforeLoad: () => {
      throw redirect({ to: "/runs" });
    },
  }),
  createRoute({ getParentRoute: under, path: "/runs", validateSearch: readRunsSearch, component: lazyRouteComponent(() => import("./screens/runs/runs"), "Runs") }),
  createRoute({
    getParentRoute: under,
    path: "/runs/new",
    validateSearch: (search: Record<string, unknown>): { definition?: string; from?: string } => ({ ...readText(search, "definition"), ...readText(search, "from") }),
    component: lazyRouteComponent(() => import("./screens/new_run/new_run"), "NewRun"),
  }),
  createRoute({ getParentRoute: under, path: "/runs/$id", validateSearch: readRunSearch, component: lazyRouteComponent(() => import("./screens/run/run"), "RunScreen") }),
  createRoute({
    getParentRoute: under,
    path: "/compare",
    validateSearch: (search: Record<string, unknown>): { left?: string; right?: string } => ({ ...readText(search, "left"), ...readText(search, "right") }),
    component: lazyRouteComponent(() => import("./screens/compare"), "Compare"),
  }),
  createRoute({ getParentRoute: under, path: "/approvals", validateSearch: readApprovalsSearch, component: lazyRouteComponent(() => import("./screens/approvals/approvals"), "Approvals") }),
  createRoute({ getParentRoute: under, path: "/definitions", component: lazyRouteComponent(() => import("./screens/definitions/definitions"), "Definitions") }),
  createRoute({ getParentRoute: under, path: "/schedules", component: lazyRouteComponent(() => import("./screens/schedules"), "Schedules") }),
  createRoute({ getParentRoute: under, path: "/workers", component: lazyRouteComponent(() => import("./screens/workers"), "Workers") }),
  createRoute({ getParentRoute: under, path: "/machines", component: lazyRouteComponent(() => import("./screens/machines"), "Machines") }),
  createRoute({
    getParentRoute: under,
    path: "/usage",
    validateSearch: (search: Record<string, unknown>): { days?: string; kind?: string } => ({ ...readText(search, "days"), ...readText(search, "kind") }),
    component: lazyRouteComponent(() => import("./screens/usage"), "UsageScreen"),
  }),
  createRoute({ getParentRoute: under, path: "/keys", component: lazyRouteComponent(() => import("./screens/keys"), "Keys") }),
  createRoute({ getParentRoute: under, path: "/audit", component: lazyRouteComponent(() => import("./screens/audit"), "Audit") }),
] as const;

const tree = root.addChildren([signInRoute, frameRoute.addChildren(routes)]);

export function makeRouter(client: QueryClient) {
  return createRouter({ routeTree: tree, context: { client }, defaultPendingComponent: () => <Loading />, defaultPendingMs: 200, defaultErrorComponent: ({ error, reset }) => <Failed error={error} onRetry={reset} /> });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof makeRouter>;
  }
}
