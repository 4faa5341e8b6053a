# kind's base image, built by the steps of kind's own Dockerfile from a Debian file system and programs that were built before. The context
# has kind's files/, and the programs in bin/, sbin/ and cni/.
FROM allaboard-kind-debian:local
COPY files/ /
COPY bin/ /usr/local/bin/
COPY sbin/ /usr/local/sbin/
COPY cni/ /opt/cni/bin/
# kind lists images with crictl, whose module is in no proxy; this script replaces it.
RUN printf '#!/bin/sh\n[ "$1" = images ] && exec ctr --namespace k8s.io images list\nexit 1\n' >/usr/local/bin/crictl
RUN chmod 755 /kind /kind/bin /kind/bin/*.sh /usr/local/bin/* /usr/local/sbin/* \
    && find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete \
    && rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/* \
        /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \
        /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/* \
    && echo "ReadKMsg=no" >>/etc/systemd/journald.conf \
    && ln -sf /usr/lib/systemd/systemd /sbin/init \
    && systemctl enable kubelet.service containerd.service undo-mount-hacks.service \
    && systemctl mask systemd-binfmt.service \
    && mkdir -p /etc/kubernetes/manifests \
    && ctr oci spec \
        | jq '.hooks.createContainer[.hooks.createContainer | length] |= . + {"path": "/kind/bin/mount-product-files.sh"} | del(.process.rlimits)' \
        >/etc/containerd/cri-base.json
# In addition to kind's steps: containers don't try to lower their OOM score, and cgroups of version 1 are accepted.
RUN sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml \
    && sed -i 's/^KUBELET_EXTRA_ARGS=/&--fail-cgroupv1=false /' /etc/default/kubelet
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
